"""The search for regions that a flow has lost: it starts outside the flow's own draws."""
