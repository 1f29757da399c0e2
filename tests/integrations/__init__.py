"""The frameworks that run on the client, each against real brokers."""
