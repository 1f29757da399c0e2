"""Sending: queue selection, the send task, batches, transactions, request and reply.

- `back_pressure`: the limit on sends, and bytes of bodies, in flight
- `batch`: batches of messages, given by the user or accumulated from single sends
- `fast_send`: the fast path of plain messages, one TopicFastSend for each topic of a producer
- `fault_strategy`: fault tolerance: slow or failed brokers are avoided for a time
- `prepare`: validates, encodes and compresses a message or batch before it is sent
- `producer`: the producer's public API and lifecycle
- `queue_selection`: chooses the queue of a message, and which errors are retried
- `recall`: recalls a timer message that is not due yet, by the handle that its send returned
- `request_reply`: request and reply: a message whose consumer sends an answer back
- `send_task`: one send with all its attempts, until it has a result
- `transactions`: transactional messages: visible once the producer commits
"""
