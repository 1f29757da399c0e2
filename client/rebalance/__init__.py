"""What a group member owns: queues, locks, process queues, offsets.

- `allocate_strategies`: How the members of a group split the queues of a topic: Java's six strategies, to
  the queue
- `broker_assignment`: Who is in a group, and which queues the broker assigns to us when members do not
  split them themselves
- `fastjson`: The JSON that Java's clients write: message queues as keys of maps, and keys that are bare
  numbers
- `local_offset_store`: offsets of one member in a file of its own, for BROADCASTING
- `offset_store`: how far a group is in each queue, as a consumer sees it
- `owned_queues`: the queues that a member has, how each is begun and how it is given up
- `process_queue`: what was pulled of one queue and is not finished
- `queue_locks`: the broker's locks on queues that are consumed in order, so that two members never work on
  one at a time
- `rebalance`: which queues are this member's, and the way from those it has to those it should have
- `remote_offset_store`: offsets of a group at the brokers, for CLUSTERING
- `start_offset`: Where a consumer begins in a queue it was given: at what is stored, else where the group
  wants to begin
- `subscription`: what a group wants of one topic, as pulls and heartbeats tell the broker
"""
