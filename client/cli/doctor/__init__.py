"""`firearrow doctor`: checks of a running cluster or a stopped store, each with what was found, why it matters and what
fixes it.

`cluster` and `store_files` gather the facts, from brokers or from files; a check is one function that reads them.

- `broker_checks`: checks of brokers and their machines: addresses, disk, flush, memory, clock, backup
- `checks`: a check, its findings, and running all of them
- `cluster`: facts of a running cluster, FireArrow's or Apache's
- `command`: the command, its output, and its output as a plugin of Nagios
- `facts`: what checks read
- `group_checks`: checks of consumer groups and their members
- `replica_checks`: checks of masters and slaves
- `store_files`: facts of a store folder
- `topic_checks`: checks of topics, their queues and messages
"""
