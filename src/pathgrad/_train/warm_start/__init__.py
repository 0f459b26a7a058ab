"""The best Gaussian for a target: where the training of a flow begins."""
