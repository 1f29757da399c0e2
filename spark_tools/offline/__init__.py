"""Stores read as files, never written.

- `index_plan`: Ranges narrowed to where the store's key index shows the wanted keys, so that a large store
  is not read for a few
- `log_order_plan`: Queues read abreast: a plan by pieces of the log instead of by queues, for who wants all
  of many queues
- `queue`: One queue of one store: its entries and the records that they show
- `queue_reader`: one pass over a range of a stored queue
- `reader`: one or several stores as one place to read from
- `store`: one broker's folder, FireArrow's or Apache's: topics, queues, groups and the log
- `store_config`: What a store's `config` folder says: topics and the offsets of groups, in Java's JSON
- `store_source`: store folders as a place to read from
- `tail_check`: What a store has behind the ends of its queues: entries without records, records without
  entries, torn bytes
"""
