"""What a load reads, without Spark: options, offsets, splits.

- `batch`: What one `load()` reads: queues, bounds pinned once, offsets, parts
- `data_loss`: What becomes of ranges that were asked for and are not there: an error that names them, or a
  count and a warning
- `offsets`: Offsets as texts and as values: JSON by topic, broker and queue, and the points at which
  reading starts or ends
- `option_parsing`: What texts of options mean: whole numbers, sizes, lists, tags, JSON
- `options`: Every option of the source, declared once
- `pushdown`: What a query's filters say beforehand: fewer queues, fewer offsets, a narrower choice
- `source`: Options become an Origin: the folders of stores, or the brokers behind name servers
- `splits`: Ranges are cut into parts for tasks: none too large, enough of them, small ones together
- `start_end`: Points become offsets: what `earliest`, JSON or a time means for each queue, and what of it
  is not there any more
- `stream_offsets`: The moving end of a stream's queues: where it begins, how far it may go now, and what
  lies between two offsets
- `topics`: Which queues are wanted: topics by name or pattern, or queues by number
"""
