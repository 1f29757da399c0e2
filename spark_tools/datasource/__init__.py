"""The format `rocketmq`: Spark's data source and sink.

- `filters`: translates Spark's filters, and SQL conditions, to a Pushdown
- `bodies`: bodies as columns: JSON, MessagePack, Avro, protobuf
- `progress`: progress of streams after each micro-batch: their lag, and a consumer group that follows
- `ranges`: a stream source whose rows are offset ranges instead of messages; used by the copy job
- `reader`: batch read: plans partitions once and reads each in a task
- `rows`: reads the ranges of one task as Arrow batches
- `scan`: reads a table through `mapInArrow`, with one copy less of each row
- `sink`: batch write: each task sends its rows
- `sink_options`: every option of the sink
- `source`: the data source that Spark imports for the format `rocketmq`
- `stream`: stream read: plans micro-batches and reads their partitions
- `stream_sink`: stream write: sends each micro-batch, then reports it to Spark
"""
