"""One module for each family of request codes.

- `acks`: ACK_MESSAGE (200051), BATCH_ACK_MESSAGE (200151), CHANGE_MESSAGE_INVISIBLETIME (200053)
- `assignment`: Queues shared out by the broker: QUERY_ASSIGNMENT (400), and SET_MESSAGE_REQUEST_MODE (401),
  which says whether a group pulls or pops a topic
- `broker_admin`: The broker looked at and tuned: runtime info (28), config (25, 26), statistics (315), HA
  status (907)
- `clients`: Clients come and go: HEART_BEAT 34, UNREGISTER_CLIENT 35, the member list 38,
  CHECK_CLIENT_CONFIG 46
- `consumer_admin`: Consumers looked at: their connections (203), what they subscribe (300, 343, 345), and
  requests relayed to one of them (307, 309)
- `end_transaction`: END_TRANSACTION (37), RESUME_CHECK_HALF_MESSAGE (323)
- `groups`: Subscription groups made, changed, deleted, listed: 200, 225, 207, 201, 352
- `lock_queues`: Orderly consumers lock their queues: LOCK_BATCH_MQ (41), UNLOCK_BATCH_MQ (42)
- `namesrv_admin`: What administrators change in a name server: REGISTER_TOPIC_IN_NAMESRV 217,
  DELETE_TOPIC_IN_NAMESRV 216, WIPE_WRITE_PERM_OF_BROKER 205, ADD_WRITE_PERM_OF_BROKER 327,
  UPDATE_NAMESRV_CONFIG 318, GET_NAMESRV_CONFIG 319
- `namesrv_register`: What brokers tell a name server: REGISTER_BROKER 103, UNREGISTER_BROKER 104,
  QUERY_DATA_VERSION 322, BROKER_HEARTBEAT 904
- `namesrv_routes`: What everybody asks a name server: GET_ROUTEINFO_BY_TOPIC 105, GET_BROKER_CLUSTER_INFO
  106, the topic lists 206, 224, 304, 311, 312, 313, GET_BROKER_MEMBER_GROUP 901
- `offsets`: How far groups have consumed: QUERY_CONSUMER_OFFSET (14), UPDATE_CONSUMER_OFFSET (15), all of
  it (43)
- `pop`:
- `pop_notification`: NOTIFICATION (200054): is there something to pop, or tell me when there is
- `pull`: PULL_MESSAGE (11) and LITE_PULL_MESSAGE (361): checks in Apache's order, the read, the hold
- `query`: VIEW_MESSAGE_BY_ID (33), QUERY_MESSAGE (12), QUERY_CONSUME_QUEUE (321): records and entries by
  place or key
- `reply_messages`: SEND_REPLY_MESSAGE (324) and its V2 (325): the reply is pushed to the client that asked
  (326), then stored
- `reset_offsets`: Offsets moved by an administrator: reset (222), clone (314), correction (308), and
  clients hold (223)
- `send`: SEND_MESSAGE (10), SEND_MESSAGE_V2 (310), SEND_BATCH_MESSAGE (320): checks, topic creation,
  staging
- `send_back`: CONSUMER_SEND_MSG_BACK (36): a consumer gives back a message that it could not consume
- `timers`: How far the timer came: GET_TIMER_CHECK_POINT (60), GET_TIMER_METRICS (61)
- `topics`: Topics made, changed, deleted and listed: 17, 18, 215, 21, 351, 305
"""
