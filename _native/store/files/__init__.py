"""The store's files: mapped segments, preallocation, syncing, errors of the disk.

- `config_files`: what is needed of the broker's config files: topics, deletions of topics, trimmed queues
- `errors`: why a store cannot be opened or has stopped
- `exclusive_file`: exclusive access to a file that is not open or mapped elsewhere
- `layout`: layout of Apache's store files
- `mmap_budget`: a limit on mapped queue files
- `page_cache`: sync or drop cached pages after an unclean end
- `parallel`: process many items with a few threads
- `preallocation`: allocates disk blocks past the end of the log before a sync
- `recycled_segment`: an expired segment file, zeroed and kept to become the log's next segment
- `repair_log`: a line for each damage found at an open; keeps what is removed under STORE/damaged
- `segment`: one mapped file of the store
- `segment_files`: the segment files of a folder: one size, no gap, named after their first byte
- `sync_gate`: fdatasync of a log's files, one at a time
"""
