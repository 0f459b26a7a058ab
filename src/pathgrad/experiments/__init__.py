"""The experiments that come with the library."""
