"""A log density of one's own."""
