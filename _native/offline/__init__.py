"""A store's files read where they are: nothing is written, no lock is taken.

- `index_reader`: The key index of a store, asked for a few keys: what each file tells of where they may be
- `log_file`: The commit log of one store: which file has a physical offset
- `log_reader`: The records of a log one behind the other, as they were stored: for audits and for exports
  without order
- `mapped_files`: Mapped log files: a few at a time, and of those only the newest with their pages, however
  large the store is
- `queue_reader`: The entries of one queue as its files hold them: 20 bytes each, physical offset, size,
  tags code
- `segment_files`: The files of a rolled folder: one behind the other, each named by the position of its
  first byte
"""
