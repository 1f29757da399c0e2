"""`firearrow message`, `tail`, `send`, `timer` and `tx`.

- `avro_body`: bodies in Avro, read by a schema
- `body_formats`: formats of bodies that need a library or a schema
- `half_messages`: half messages: which are open; found by id, ended by an operator
- `message`: messages: get, find, their path, send again
- `message_path`: what brokers know of one message: stored, due, delivered, retried, dead
- `message_view`: messages as rows, lines and by a template; which ones are meant
- `queue_reader`: reads queues by pulls, without a group: what is stored, then what comes
- `resending`: stored messages sent again: what is kept, where a dead letter came from
- `selection`: the messages that a command is about
- `send`: send messages: one, many, or one for each line
- `send_delay`: delays by timer messages or delay levels, whichever the brokers have
- `tail`: messages as they come
- `timer`: messages that are not due yet
- `tx`: transactions: list, ask, commit, rollback
"""
