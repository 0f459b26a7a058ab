"""Figures and the report page. This package draws what it receives, and never asks which experiment it is."""
