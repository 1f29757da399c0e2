"""Clients of gRPC, which are Apache's of 5.x: the methods of `apache.rocketmq.v2.MessagingService`.

A method translates: it makes the requests that a client of remoting would send, and turns their answers into its own.
So both kinds of clients have the same rules, rights, quotas and counts. What needs `protobuf` is imported when
the first such client connects.

- `acknowledging`: AckMessage, ChangeInvisibleDuration, ForwardMessageToDeadLetterQueue
- `authorization`: the signature of a call
- `call`: one call, and the peer of the requests that it makes
- `client`: the clients that are online, and each as handlers and tables see it
- `commands`: what the broker asks a client by Telemetry; ids of transactions
- `connection`: the calls of one connection
- `context`: what the methods share
- `descriptors`: the messages of the protocol, generated
- `health`: gRPC's health service
- `lite`: SyncLiteSubscription, and the pops of lite topics
- `message_checks`: what is asked of a message before it is sent
- `message_codec`: messages from and to properties
- `messages`: the classes of the protocol's messages
- `offsets`: PullMessage, UpdateOffset, GetOffset, QueryOffset
- `receipt_recovery`: what became of renewed messages since their file was written
- `receipt_table`: the messages that are renewed, and `receiptHandles.json` (ours)
- `receipts`: receipt handles
- `receiving`: ReceiveMessage
- `reflection`: gRPC's server reflection
- `renewals`: extends the invisible time of messages that are being processed
- `routes`: QueryRoute, QueryAssignment, and the queue of a message that is sent
- `sending`: SendMessage, EndTransaction, RecallMessage
- `service`: the methods by their names
- `service_call`: a call of health or reflection
- `sessions`: Telemetry, Heartbeat, NotifyClientTermination
- `settings`: what a client states, and what the server adds
- `statuses`: refusals, and codes for those of remoting
"""
