"""Push and pull: transforms, and the flow that they make."""
