"""Fit your own log density with nothing chosen."""
