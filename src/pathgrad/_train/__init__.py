"""Training: methods, the loop that runs them, validation, and rows of metrics."""
