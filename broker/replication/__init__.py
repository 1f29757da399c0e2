"""Replication: the log is sent to slaves, Apache's or ours.

- `confirmed_offset`: up to where enough copies have the log, and what a send gets if there are too few
- `master`: the replication port of a master: its slaves, which of them are in sync, and their status
- `master_connection`: one slave of a master: its requests and acknowledgements, the log sent to it
"""
