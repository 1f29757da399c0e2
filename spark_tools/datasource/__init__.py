"""Spark's data source and sink.

- `filters`: Spark's filters become a Narrowing
- `progress`: Where streams are, as Spark tells it after each micro-batch: the lag, and a consumer group
  that follows
- `ranges`: the stream source again, whose rows are not messages but where they lie
- `reader`: A table read: parts are planned once, in a process beside the driver
- `rows`: What a task does: its ranges are read one behind the other and become Arrow batches, a chunk of
  the log at a time
- `scan`: The table as a function from batches to batches: one copy of each row less than the format's
- `sink`: The sink of a batch write: Spark's face of Outgoing
- `sink_options`: Every option of the sink, declared once
- `source`: The format `rocketmq`
- `stream`: A stream read: Spark's face of a Tail
- `stream_sink`: The sink of a stream: each micro-batch is sent and acknowledged, then Spark hears of it
"""
