"""The store's files: mapped segments, preallocation, syncing, errors of the disk.

- `directory_sync`: what stands in the store's folders is on the disk, and what a power cut left half made
  is taken away
- `errors`: Why a store cannot be opened or goes on no more
- `exclusive_file`: a file that nobody else has, open or mapped, in this process or another
- `layout`: Layout of the files: see layout.pxd, which asserts itself when compiled
- `mmap_budget`: a bound for the mapped queue files
- `page_cache`: what the kernel holds of a store's files may not be what the disk holds, after an end that
  was not clean
- `parallel`: many files brought to the disk at once, by a few threads: the disk does then in one go what it
  would do one by one
- `preallocation`: disk space behind the log's end, given before a sync begins, as much as may come while it
  runs
- `recycled_segment`: the one file that waits to be a segment of the log again
- `repair_log`: what an open found damaged, one line each, and what it took out of the way, kept under
  STORE/damaged
- `segment`: one mapped file of the store
- `segment_files`: The files of a rolled folder (commit log, consume queue): of one size, without a gap,
  named after the first byte
- `sync_gate`: fdatasync of a log's files
"""
