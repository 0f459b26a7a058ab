"""Small targets with known answers."""
