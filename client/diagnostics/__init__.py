"""What brokers ask of a client: running info, statistics, resets."""
