"""Lattice field theory: phi^4 in two dimensions, with flows that have the symmetries of the lattice."""
