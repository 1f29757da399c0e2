"""`firearrow doctor`: checks of a running cluster or a stopped store, each with what was found, why it matters and what
fixes it.

`cluster` and `store_files` gather the facts, from brokers or from files; a check is one function that reads them.

- `broker_checks`: checks of brokers: addresses, readiness, tables, the store, versions
- `certificate_dates`: when certificates begin and end
- `checks`: a check, what it can find, its findings, and running all of them
- `cluster`: facts of a running cluster, FireArrow's or Apache's
- `command`: the command, its output, and its output as a plugin of Nagios
- `facts`: what checks read
- `group_checks`: checks of consumer groups and their members
- `machine_checks`: checks of the machines of brokers: disk, flush, memory, limits, clock
- `name_server_checks`: checks of name servers and of what they know: absent brokers, clusters, certificates
- `name_server_facts`: facts of name servers, and of brokers that they do not know
- `replica_checks`: checks of masters and slaves
- `seen_brokers`: brokers that the doctor saw before
- `store_files`: facts of a store folder
- `store_samples`: damage of a store folder, by samples of a large one
- `topic_checks`: checks of topics, their queues and messages
"""
