"""The commit log, consume queues, key index and checkpoint: formats, appending, look-up.

- `batch`: The items of a batch body (SEND_BATCH_MESSAGE): every length is checked before it is used
- `checkpoint`: how far the files are known to be on disk (Apache's `checkpoint`, 4096 bytes, six i64 at its
  start)
- `commit_log`: the ordered segments of all messages
- `consume_queue`: the entries of one topic and queue
- `dispatcher`: queue entries and index keys of records
- `entry_repair_log`: queue entries that readers met and that lead to no good record, each told once
- `journal_page`: entries of the journal
- `key_index`: which records have a key
- `properties`: Chosen properties of a record, read where they lie: what a filter asks of every message of a
  scan
- `queue_check`: Queues compared with the log
- `received_message`: Messages as a consumer gets them, decoded when asked
- `record`: Message records: written, checked and decoded (see record.pxd and layout.pxd)
- `results`: What the store's face gives back for puts and look-ups
"""
