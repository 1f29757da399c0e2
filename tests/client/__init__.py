"""The Python client: its rules with fakes and a clock; every call against a real broker, ours or Apache's."""
