"""The Python client: comes with its own issue; empty today."""
