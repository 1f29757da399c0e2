"""Replication of the log: what a slave does with its master's bytes, and checksums of a log. Knows no socket.

- `follower`: checks the records of a master's log and appends the whole ones
- `log_checksums`: CRC-32C of ranges of the log, by which two logs are compared
- `read_ahead`: which bytes of the log can be sent to a slave without waiting for the disk
"""
