"""Shared vocabulary: draws, outcomes, errors, trees of arrays. It depends on no other layer."""
