"""Reads a store's files in place, while a broker runs or not: writes nothing, takes no lock.

- `config_tables`: reads config files of a store: any object, and the offsets of groups
- `index_file`: reads an index file: its header, its slots, the entries of a few keys
- `index_reader`: looks up a few keys in the key index of a store
- `log_file`: the commit log of one store: finds the file that holds a physical offset
- `log_reader`: reads the records of a log in log order, for audits and unordered exports
- `mapped_files`: an LRU cache of mapped log files, with a limit on resident pages
- `queue_reader`: reads the entries of one consume queue
- `segment_files`: lists the segment files of a folder
- `store_folder`: the folder of one store, and what its files are
"""
