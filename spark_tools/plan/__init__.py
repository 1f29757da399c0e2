"""Plans what a load reads, without Spark: options, offsets, splits.

- `batch`: plan of one `load()`: queues, bounds, offsets, splits
- `comparisons`: comparisons of a column with values, as a Pushdown
- `data_loss`: ranges that are missing: an error that names them, or a count and warnings
- `offsets`: offsets as JSON and as values, and the points where reading starts or ends
- `option_parsing`: option parsing: declares options with their parsers, reads them from strings, prints
  their table
- `options`: every option of the source
- `pushdown`: filter pushdown: a query's filters as fewer queues, smaller ranges and a narrower message filter
- `queue_records`: offsets of a stream with the records that they belong to, and where to go on if a queue has
  others
- `source`: makes the Source that options name: stores in folders, or brokers found through name servers
- `splits`: splits ranges into units of work for tasks
- `start_end`: resolves start and end points to offsets, and reports requested offsets that are missing
- `stream_offsets`: offsets of a stream: where it starts, how far the next micro-batch goes, how large its
  lag is
- `topics`: selects topics and queues, and waits until a topic exists
"""
