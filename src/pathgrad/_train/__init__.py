"""Train a flow and keep what the training produced: checkpoints and run directories."""
