"""What all experiments share that fit a flow to a target."""
