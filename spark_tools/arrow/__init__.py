"""Arrow columns and batches: converts records to rows and rows to messages.

- `batch_sender`: sends Arrow batches to a cluster as batch requests for each queue
- `columns`: the columns of the source, and records as Arrow batches
- `export_manifest`: the manifest of an export: source, ranges and files
- `message_columns`: the columns of the sink and their types
- `parquet_writer`: writes the Parquet files of one task
- `queue_partitioner`: selects the queue of each row of an Arrow batch
"""
