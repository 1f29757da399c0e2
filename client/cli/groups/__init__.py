"""`firearrow group`, `clients` and `dlq`.

- `clients`: connected clients
- `dlq`: dead letters
- `group`: consumer groups
"""
