"""How good a flow is: its evaluation, and the verdict on it."""
