"""Fit a flow to your own log density."""
