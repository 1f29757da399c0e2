"""Consistency checks of whole files: log records, queue entries, index files, timer log."""
