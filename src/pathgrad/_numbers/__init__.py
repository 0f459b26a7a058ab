"""What a flow is worth: evaluation, and the verdict as a value."""
