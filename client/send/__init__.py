"""Sending: queue selection, the send task, batches, transactions, request and reply.

- `back_pressure`: how many sends, and bytes of bodies, are on the way at a time
- `batch`: messages that travel and are stored as one request
- `fast_send`: the short way of ordinary messages, one Lane for each topic of a producer
- `fault_strategy`: brokers that answered slowly or failed, and until when they are passed over
- `prepare`: a message (or batch) as it leaves: checked, its properties encoded, its body packed
- `producer`: sends messages
- `queue_selection`: Where a message must go: one queue, a queue that somebody chooses, or anywhere
- `recall`: a timer message that is not due yet is called back by the handle that its send gave
- `request_reply`: Request and reply: a message that is answered by whoever consumes it
- `send_task`: one message on its way to a broker, with its tries, until it has a result
- `transactions`: messages that become visible when what they tell of has been done, or never
"""
