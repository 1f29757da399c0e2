"""Administration: requests, records and look-ups.

- `admin`: what operators and tests ask of brokers and name servers: topics, groups, offsets, progress,
  messages
- `cluster_admin`: what only operators do: see how far a message came, try it again, copy progress, set
  modes and values
- `message_queries`: stored messages found by the place in the log, by unique id, by key
- `records`: What administrators are told: topics, groups, clusters, progress, connections
- `requests`: how administrators ask: one broker, the masters of a cluster, the brokers of a topic, a name
  server
"""
