"""Time: integrators, and how gradients go back through them."""
