"""Transforms, and the flows composed of them."""
