"""Targets, bases, fields and divergences: what speaks of one point."""
