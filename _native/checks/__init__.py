"""Consistency checks of whole files: log records, queue entries, index files, timer log.

- `findings`: the faults that a check found
- `index_files`: checks index files: chains, and keys against the log
- `log_records`: surveys the records of a range of the log
- `queue_entries`: counts the entries of a queue's file and compares them with their records
- `timer_log`: checks the units of a timer log
"""
