"""What is noted of messages on their way, and sent to the trace topic."""
