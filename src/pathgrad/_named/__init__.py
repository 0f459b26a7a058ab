"""Targets with named parameters: supports, functions of named values, and models of other packages."""
