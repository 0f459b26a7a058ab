"""Run directories: writing, reading, resuming, comparing."""
