"""How the log travels from a master to a slave. None of the wires imports another one.

- `apache`: HAConnection, HAClient: the log alone
- `firearrow`: between two FireArrow brokers: the log with its progress and tables, checksums and a shared secret
"""
