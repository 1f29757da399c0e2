"""Arrow columns and batches: records to rows and rows to messages.

- `batch_sender`: Arrow batches of message columns on their way to a cluster, as batch requests of each
  queue
- `columns`: The columns of messages, and records as Arrow batches of them
- `export_manifest`: The manifest of an export: from where, which ranges, which files, written last: a
  folder without one is not complete
- `message_columns`: Which columns make a message, of which types
- `parquet_writer`: Parquet files of one task: batches go to `folder/[key=value/…]name.parquet`, under a
  hidden name until `finish`
- `queue_partitioner`: which queue each row of an Arrow batch goes to, without an object a row
"""
