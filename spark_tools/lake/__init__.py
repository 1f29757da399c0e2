"""Appends the log to tables of Iceberg, Delta Lake and Paimon, without Spark. One process, one thread.

- `progress`: how far an export is, in the table's own commits
- `export`: reads what is new, and appends it commit by commit
- `iceberg`, `delta`, `paimon`: the tables, through the Python library of each
- `command`: `firearrow export`
"""
