"""The command line. Modules here import JAX only once a command really runs."""
