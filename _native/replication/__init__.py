"""Replication of the log: what a slave does with the bytes that its master sends. Knows no socket.

- `follower`: checks the records of a master's log and appends the whole ones
"""
