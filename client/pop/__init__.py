"""Messages popped: asked for, acknowledged, hidden longer."""
