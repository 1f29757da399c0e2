"""The broker's state and its config files.

- `allocation`: which queues of a topic a client of a group consumes when the broker assigns them
- `attributes`: changes of the attributes of topics and groups (`+key=value,-key`)
- `broker_faults`: brokers that the name server lost, refused, or knew at two addresses at a time
- `broker_name`: the name of the broker that a store belongs to, and `brokerName.json` (ours)
- `clients`: producers and consumers and their connections, known from heartbeats
- `config_file`: one of Apache's `config/*.json`, replaced atomically, with the previous state in `.bak`
- `dataversion`: the version of a table's state
- `delay_offsets`: how far each delay level was delivered, and `delayOffset.json`
- `deleted_topics`: where the queues of deleted topics ended, and `deletedTopics.json` (ours)
- `groups`: subscription groups, the topics they may not read, and `subscriptionGroup.json`
- `json_fields`: typed access to members of parsed JSON
- `kv`: namespace → key → value, the name server's small store (`kvConfig.json`)
- `lmq`: topics and groups of LMQs (`enableLmq`): names that start with %LMQ%, kept in no table and no file
- `locks`: which client of a group may consume a queue in order, and `rebalanceLock.json`
- `members`: the members of one group: each client once, on the newest of its connections
- `naming_options`: the name server's options under Apache's keys
- `offsets`: how far each group has consumed each queue, and `consumerOffset.json`
- `paging`: pages of large tables (5.3 and later): which names a page has, and how large an answer may be
- `registration`: a broker's registration with a name server (REGISTER_BROKER 103), read and written
- `request_modes`: which consumer groups pop a topic instead of pulling it, and `messageRequestMode.json`
- `routes`: which broker serves which topic, and which brokers are alive
- `subscription_filter`: compiles subscriptions to the filters of the store's `get`
- `subscriptions`: what a consumer subscribes to (SubscriptionData), and the body of a heartbeat
- `topics`: the topics of this broker and `topics.json`
- `trimmed_queues`: where queues were trimmed, and `trimmedQueues.json` (ours)
"""
