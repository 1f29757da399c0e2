"""Rules of RocketMQ's protocol that broker and client share.

- `queue_allocation`: Queue allocation: how the members of a group split the queues of a topic, to the queue
  as Apache's strategies do
"""
