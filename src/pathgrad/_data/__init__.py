"""Data files: where they are, which hashes they must have, and how they are downloaded."""
