"""Fit a density with nothing chosen: warm start, flow, rounds of training, verdict."""
