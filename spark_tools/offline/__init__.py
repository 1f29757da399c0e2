"""Reads the files of stores as a Spark source; never writes them.

- `index_plan`: narrows ranges to the messages that the key index shows for the filter's keys
- `log_order_plan`: splits many queues by chunks of the log, so that the log is read only once
- `missing_entries`: finds messages in the log that their queue has no entry for
- `queue`: one queue of one store: its entries and the records they point to
- `queue_reader`: reads a range of a stored queue
- `reader`: reads one or several stores as one source
- `store`: the store folder of one broker: topics, queues, groups and the log
- `store_source`: the source made of store folders
- `tail_check`: finds entries and torn bytes past the ends of queues
"""
