"""What a group member owns: queues, locks, process queues, offsets.

- `allocate_strategies`: how the members of a group split the queues of a topic: Java's six strategies
- `broker_assignment`: requests the members of a group, and the queues that a broker assigns to this member
- `local_member`: LocalMember, which of this machine's members of a broadcasting group a consumer is
- `local_offset_store`: LocalOffsetStore, the offsets of one member in a local file, for BROADCASTING
- `offset_store`: OffsetStore, the Protocol of consumer offsets, and the table in memory that all stores share
- `owned_queues`: OwnedQueues, the queues that a member owns; acquires and releases them
- `process_queue`: ProcessQueue, the messages pulled from one queue and not finished
- `queue_locks`: QueueLocks, the broker's locks on queues that are consumed in order
- `rebalance`: Rebalancer, which finds the queues of this member, releases others and acquires new ones
- `remote_offset_store`: RemoteOffsetStore, the offsets of a group at the brokers, for CLUSTERING
- `start_offset`: where a consumer starts in a new queue, and PullRequest, the state of its pulls
- `subscription`: Subscription, what a group reads of one topic, as pulls and heartbeats report it
"""
