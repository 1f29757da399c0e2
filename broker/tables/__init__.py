"""The broker's state and its config files.

- `allocation`: which queues of a topic a client of a group consumes when the broker assigns them
- `attributes`: Attributes of topics and groups: `+key=value,-key` of the wire, applied to those that are
- `clients`: who produces and consumes over which connection, by what their heartbeats said
- `config_file`: one of Apache's `config/*.json`, replaced whole, with the state before it in `.bak`
- `dataversion`: which state of a table this is
- `delay_offsets`: how far each delay level was delivered, and `delayOffset.json`
- `groups`: subscription groups, what they are forbidden, and `subscriptionGroup.json`
- `json_fields`: Typed reading of members of parsed JSON
- `kv`: namespace → key → value, the name server's small store (`kvConfig.json`)
- `lmq`: Topics and groups of light queues (`enableLmq`): a name with %LMQ% in front is a topic with one
  queue, or a group with defaults, that no table holds and no file keeps
- `locks`: which client of a group may consume a queue in order
- `name_rules`: Names with a meaning, and what a name of a topic or a group may look like
- `naming_options`: the name server's options under Apache's keys
- `offsets`: how far each group has consumed each queue, and `consumerOffset.json`
- `paging`: Paging of large tables (5.3 and later): which names a caller gets, and what fits into one answer
- `registration`: A broker's registration with a name server (REGISTER_BROKER 103): its value, and how a
  body becomes one
- `request_modes`: which consumer groups pop a topic instead of pulling it, and `messageRequestMode.json`
- `routes`: which broker serves which topic, and which brokers are alive
- `subscription_filter`: what a subscription lets through, as the store's `get` takes it
- `subscriptions`: what a consumer wants of a topic (SubscriptionData)
- `topics`: the topics of this broker and `topics.json`
"""
