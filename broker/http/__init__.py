"""HTTP for machines that watch the broker: metrics, health and status. Off unless asked for.

- `listener`: accepts connections, reads their requests and writes the responses
- `messages`: requests and responses as bytes: parsing within bounds, heads of responses
- `pages`: which path is answered with what
"""
