"""The wire of Apache 4 and 5.

- `follower`: the slave's end of a connection
- `sender`: one slave of a master: its requests and acknowledgements, the log sent to it
"""
