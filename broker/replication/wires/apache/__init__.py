"""The wire of Apache 4 and 5.

- `follower`: the slave's end of a connection
- `sender`: the master's end of it
"""
