"""Messages to listeners: concurrently, in order, and what follows their results."""
