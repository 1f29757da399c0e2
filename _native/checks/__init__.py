"""Consistency checks of whole files: log records, queue entries, index files, timer log.

- `findings`: what a check found wrong
- `index_files`: Index files beside the log: chains in one pass, keys in the log's order
- `log_records`: the records of a range of the log, looked at once
- `queue_entries`: The entries of a queue's file: counted, and compared with the records that they show
- `timer_log`:
"""
