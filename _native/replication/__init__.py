"""Replication of the log: what a slave does with its master's bytes, and checksums of a log. Knows no socket.

- `follower`: checks the records of a master's log and appends the whole ones
- `log_checksums`: CRC-32C of ranges of the log, by which two logs are compared
- `log_pages`: which pages of the mapped log are in memory, and asking the disk for more
"""
