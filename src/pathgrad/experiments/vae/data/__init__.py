"""The image data sets: where they come from, how they are read, and how they are split."""
