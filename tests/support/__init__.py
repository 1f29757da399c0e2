"""What several test packages share: harnesses, a manual clock and loop, recorders, a broker process, a client."""
