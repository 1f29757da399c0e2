"""POP consumption: taking messages, acknowledging them, reviving those that were not.

- `ack`: acknowledgements of popped messages, and longer or shorter invisibility
- `checkpoints`: what one pop took of one queue, and its acknowledgements, as messages of the revive topic
- `long_polling`: pops that found nothing wait for news or for their deadline (PopLongPollingService)
- `order_info`: what was popped in order and is not acknowledged yet, and `consumerOrderInfo.json`
- `permissions`: may this peer look into a topic's queues for a group? Checks in Apache's order, for those
  that do not take
- `pop`: takes messages from a topic's queues for a group, and remembers what it took in check points
- `receipt_handles`: what a client gives back to acknowledge a popped message (POP_CK, ExtraInfoUtil), and
  POP's topic names
- `revive`: messages that a popping group did not acknowledge in time go to its retry topic
  (PopReviveService)
"""
