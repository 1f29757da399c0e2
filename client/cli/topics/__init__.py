"""`firearrow topic` and `queue`.

- `producers`: who sent the newest messages of a topic
- `queue`: ordered queues: who holds their locks, and what is at their head
- `shrink_topic`: taking queues away from a topic without losing sight of their messages
- `topic`: topics
"""
