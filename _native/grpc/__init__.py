"""Plain calls of gRPC without a Python object for each; all others go to the methods of `broker/grpc`.

- `plain_acks`: acknowledgements of one message that need no more than storing
- `plain_sends`: sends of one message that needs no more than storing
- `proto_writer`: writes fields of protobuf's messages
- `received_messages`: the messages of an answer to ReceiveMessage
- `send_request`: a request to send one message, decoded in place
"""
