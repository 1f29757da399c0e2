"""Queues pulled ahead of who consumes them, within bounds."""
