"""The command line. Modules here import JAX only when a command actually runs."""
