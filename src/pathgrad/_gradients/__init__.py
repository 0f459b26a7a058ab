"""Estimators, objectives, and a check of their gradients."""
