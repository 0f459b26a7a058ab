"""Attacks on pathgrad: what is wrong must be found, refused or survived."""
