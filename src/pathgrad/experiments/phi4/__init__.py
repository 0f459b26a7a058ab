"""Lattice phi^4 theory in two dimensions, with flows that have the symmetries of the lattice."""
