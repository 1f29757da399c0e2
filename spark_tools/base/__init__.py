"""Base of the Spark tools: errors, filters and the interface of sources; every other package may import it.

- `body_check`: records whose bodies do not match their CRCs
- `closed_pipe`: what PySpark prints when Spark closes the connection of a worker
- `disk_errors`: the message of a job whose files cannot be written
- `errors`: errors of the Spark tools
- `filter`: which messages of a range are read
- `filter_eval`: applies a filter to records
- `provenance`: where a message that was sent again came from
- `source`: the common interface of store files and live brokers
- `worker_setup`: settings of a Python worker forked by Spark
"""
