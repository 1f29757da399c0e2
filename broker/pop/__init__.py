"""POP consumption: taking messages, acknowledging them, reviving those that were not.

- `ack`: acknowledges popped messages, changes how long they are invisible, and moves the offset of queues
  popped in order
- `checkpoints`: check points (what one pop took of one queue) and acknowledgements, as messages of the revive
  topic
- `long_polling`: holds pops that found nothing until messages arrive or their deadline passes
  (PopLongPollingService)
- `in_flight`: popped messages that are not acknowledged yet, for LIST_POP_IN_FLIGHT (30005)
- `order_info`: what was popped in order and is not acknowledged yet, and `consumerOrderInfo.json`
- `permissions`: checks, in Apache's order, whether a client may peek at a topic's queues for a group
- `pop`: takes messages from a topic's queues for a group, and writes check points for them
- `receipt_handles`: the receipt handle, by which a client acknowledges a popped message (POP_CK,
  ExtraInfoUtil), and POP's topic names
- `revive`: sends messages that were not acknowledged in time to the group's retry topic (PopReviveService)
"""
