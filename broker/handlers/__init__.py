"""One module for each family of request codes.

- `access_routes`: builds the handlers of users and rules
- `acks`: acknowledges popped messages, changes their invisible time (200051, 200151, 200053)
- `acls`: what users may do (3006 to 3010)
- `assignment`: assigns queues to group members (400); whether a group pulls or pops a topic (401, 402)
- `broker_admin`: runtime info (28), config (25, 26), statistics (315), cold read limits (2001 to 2004)
- `broker_routes`: builds the handlers of a broker from its context and services
- `clients`: heartbeats (34), unregistration (35), members of a group (38), subscription checks (46)
- `connections`: refusals and connections (30007, 30010, 30011), of FireArrow alone
- `consumer_admin`: connections and subscriptions of groups, requests relayed to a client, progress of groups
- `end_transaction`: commits and rollbacks (37), resumed checks of half messages (323)
- `group_lag`: locks of queues, lag (30004, 30006), of FireArrow alone
- `groups`: creates, changes, deletes and lists subscription groups (200, 225, 207, 201, 352, 353)
- `host_status`: disks, fsync, open files, memory, addresses and clock of the broker's machine (30012)
- `lite`: subscriptions to lite topics, and pops of them (200071, 200070)
- `lite_admin`: lite topics, their groups and clients, for operators (200074 to 200079)
- `lock_queues`: locks of orderly consumers on their queues (41, 42)
- `namesrv_admin`: name server: topics, write permissions, config, key-value config (217, 216, 205, 327, 318,
  319, 100...)
- `namesrv_register`: name server: registration and heartbeats of brokers (103, 104, 322, 904)
- `namesrv_routes`: name server: routes, cluster info, topic lists (105, 106, 206, 224, 304, 311, 312, 313,
  901)
- `offsets`: consumer offsets (14, 15, 43); offsets and times of queues (29, 30, 31, 32)
- `overview`: all topics and all groups with their progress, page by page (30019, 30020), of FireArrow alone
- `plain_acl`: `plain_acl.yml`: UPDATE_AND_CREATE_ACL_CONFIG (50) to GET_BROKER_CLUSTER_ACL_CONFIG (54)
- `pop`: POP_MESSAGE (200050), PEEK_MESSAGE (200052)
- `pop_notification`: NOTIFICATION (200054): waits until there is something to pop; POLLING_INFO (200055)
- `pull`: PULL_MESSAGE (11) and LITE_PULL_MESSAGE (361): checks, read, long polling
- `query`: records and queue entries by offset or key (33, 12, 321)
- `quotas`: sets and lists quotas (30013, 30014), of FireArrow alone
- `replicas`: the state of replication, and from where a slave copies (907, 906)
- `reply_messages`: request and reply: pushes a reply to the client that sent the request, and stores it (324,
  325)
- `reset_offsets`: resets, clones and corrects consumer offsets (222, 314, 308), asks clients for theirs (223)
- `send`: SEND_MESSAGE (10), SEND_MESSAGE_V2 (310), SEND_BATCH_MESSAGE (320)
- `send_back`: CONSUMER_SEND_MSG_BACK (36): retries a message that a consumer could not consume
- `status`: status and history of the broker (30008, 30009, of our own)
- `timers`: timer checkpoint and metrics (60, 61), delay offsets (45), recalls (370)
- `topics`: creates, changes, deletes and lists topics, their statistics, clean-up of unused files
- `trim_topic`: removes the first messages of a topic's queues (30001, of FireArrow alone)
- `users`: creates, changes, deletes and lists users (3001 to 3005)
- `waiting_messages`: lists timer, delayed, half and popped messages (30002, 30003, 30005), of FireArrow alone
"""
