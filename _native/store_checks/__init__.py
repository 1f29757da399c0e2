"""Checks a store's files: records, queues, index, groups, timer, config. Independent of Spark and of the broker.

- `audit`: audits one store, from its log to its consumer groups
- `compaction_files`: checks compacted messages and their entries
- `findings`: what a check found wrong, how bad it is, what it means and what repairs it
- `groups`: the lag of consumer groups
- `index_entries`: checks the entries of an index file: chains, and keys against the log
- `index_files`: lists index files and checks them
- `log_part`: checks a part of the log in a worker, against its queues and the index
- `log_ranges`: splits the log into ranges and groups them into parts
- `log_records`: surveys the records of a range of the log
- `merge_parts`: merges the results of the parts of the log
- `queue_entries`: counts the entries of a queue's file and compares them with their records
- `queues`: checks the files of queues
- `raw_findings`: what a compiled check found, before it has a file and a sentence
- `small_files`: checks config files, the checkpoint and the broker's progress journal
- `timer_files`: checks the timer's files
- `top_counts`: counts messages and bytes by topic, queue, tag, hour and producer host
"""
