"""`firearrow group`, `clients` and `dlq`.

- `clients`: connected clients
- `dead_letters`: the dead letters of a group, read by choice, and how far they were sent again
- `dlq`: dead letters: list, show, export; the verbs
- `drop`: dead letters that are not sent again
- `edits`: what of a message is changed before it is sent again
- `group`: consumer groups
- `receipts`: what became of each dead letter
- `redrive`: dead letters sent again
"""
