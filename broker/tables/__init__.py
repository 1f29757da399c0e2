"""State of the broker: topics, groups, offsets, clients, locks, routes."""
