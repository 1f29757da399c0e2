"""Administration: requests, records and look-ups.

- `admin`: Admin, the public API: topics, groups, offsets, lag, messages, clients
- `cluster_admin`: Operations, for operators: message tracks, direct consumption, offset cloning, request
  modes, name server values
- `extension_records`: the values that the requests of `extensions` return
- `extensions`: Extensions, requests that only FireArrow's broker answers
- `listings`: all topics or groups of a FireArrow broker, page by page
- `message_queries`: finds stored messages by offset id, unique id or key
- `overview`: how all topics and groups of a cluster are, in few requests
- `records`: the values that the requests return, read from the JSON of brokers
- `replicas`: masters and slaves of each broker name, and how far each slave is
- `requests`: sends admin requests: to one broker, the masters of a cluster, the brokers of a topic, name
  servers
- `roles`: makes a slave the master of its name
- `users`: Users, for operators: users and rules
"""
