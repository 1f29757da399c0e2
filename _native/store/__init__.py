"""The message store: commit log, consume queues, key index. Knows no socket and no asyncio.

- `get_message`: fetch: the records that a pull gets
- `group_commit`: a thread that syncs the log whenever it is asked to
- `message_store`: an open store folder
- `store_cleaner`: deletes the old files of an open store
- `store_folder`: one store's folder, held by one broker
- `store_reader`: what an open store answers
"""
