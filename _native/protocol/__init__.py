"""Rules of RocketMQ's protocol that broker and client share.

- `queue_allocation`: how the members of a group split the queues of a topic, as Apache's strategies do
"""
