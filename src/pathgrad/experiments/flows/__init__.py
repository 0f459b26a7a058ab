"""Code shared by all experiments that fit a flow to a target."""
