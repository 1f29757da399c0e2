"""`firearrow topic` and `queue`.

- `queue`: ordered queues: who holds their locks
- `shrink_topic`: taking queues away from a topic without losing sight of their messages
- `topic`: topics
"""
