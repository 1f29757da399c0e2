"""A store audited: log, queues, index and groups compared. Knows no Spark and no broker.

- `audit`: One store audited from its log to its groups
- `findings`: what an audit holds against a store, each with the file and the place
- `groups`: How far consumer groups are behind, by the store's own files
- `index`: Index files: what each one is, and whether its chains hold
- `log_part`: A part of the log looked at once, in a worker: records, what their queues say of them, and
  what the index does
- `log_ranges`: The log cut into ranges, and ranges put together to parts: every byte is in exactly one
- `merge_parts`: Parts of the log put together again: nothing between them may be lost or counted twice
- `queues`: The files of queues: how far they go, what is missing in them, and which entries show no record
- `store_files`: one store's folder as it lies, damaged or not
- `top_counts`: messages and bytes by topic, queue, tag, hour and producer host
"""
