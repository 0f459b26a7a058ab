"""Problems to learn on, built on the public names only."""
