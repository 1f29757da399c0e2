"""The commit log, consume queues, key index and checkpoint: formats, appending, look-up.

- `batch`: splits the body of a SEND_BATCH_MESSAGE into its items
- `batch_consume_queue`: the entries of batch queues, which may be of several messages
- `checkpoint`: how far the store's files are known to be on the disk
- `commit_log`: the segments of all messages in order
- `compaction_log`: the compacted messages of one queue, in Apache's files
- `consume_queue`: the entries of one topic and queue
- `dispatcher`: queue entries and index keys of records
- `entry_repair_log`: queue entries that point to no valid record, each reported once
- `journal_entries`: the entries of a file of the progress journal
- `journal_page`: appends journal entries to a page
- `key_index`: which records have a key
- `properties`: selected properties of a record, found without decoding the others
- `queue_check`: compares queues with the log and repairs them
- `received_message`: a message as a consumer gets it, decoded on first use
- `record`: message records: encode, check, decode
- `results`: results of puts and look-ups, and the error of a refused put
- `timer_layout`: the layout of the timer's files
"""
