"""The message store: commit log, consume queues, key index. Knows no socket and no asyncio.

- `compaction`: messages of a compaction log: read with gaps between their offsets, and compacted
- `confirm_offset`: up to where readers could see the log, kept for the next open
- `get_message`: which records of a queue a pull gets
- `group_commit`: a thread that fsyncs the log on request
- `message_store`: an open store folder
- `store_cleaner`: deletes the old files of an open store
- `store_folder`: the folder of a store, locked by one broker
- `store_reader`: read access to an open store
"""
