"""Audits a store: compares log, queues, index and consumer groups. Independent of Spark and of the broker.

- `audit`: audits one store, from its log to its consumer groups
- `findings`: what is wrong with a store, with file and position
- `groups`: the lag of consumer groups
- `index`: checks index files and their chains
- `log_part`: checks a part of the log in a worker, against its queues and the index
- `log_ranges`: splits the log into ranges and groups them into parts
- `merge_parts`: merges the results of the parts of the log
- `queues`: checks the files of queues
- `store_files`: the folder of the audited store
- `top_counts`: counts messages and bytes by topic, queue, tag, hour and producer host
"""
