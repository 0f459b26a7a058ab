"""Fit a flow of your choice to your own log density."""
