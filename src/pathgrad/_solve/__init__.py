"""ODE solves: integrators, and adjoints to differentiate through them."""
