"""Targets, bases, fields and divergences: everything that is defined for one point."""
