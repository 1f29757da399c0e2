"""The Python client of a history: senders and consumers of every kind in one event loop."""
