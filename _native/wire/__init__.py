"""Bytes on the socket: frames, headers, connections, buffers. Knows no store and no topic.

- `buffer_pool`: reusable buffers for large frames, and the memory budget of connections
- `codes`: request, response and language codes, flag bits and the protocol version
- `command`: one request or response as a Python object
- `connection`: one peer, on a transport of the loop or on a poller's socket
- `fast_send`: the client's fast path for plain messages
- `frame`: finds complete frames in a byte window
- `header`: scans a command's header in place, JSON or binary
- `json`: scans JSON in place, without creating objects
- `keep_alive`: keep-alive of TCP connections, for clients and listeners
- `limits`: limits of input from the network
- `message_properties`: encodes messages to send: properties and batch bodies
- `pending_calls`: a client's connection: matches responses to requests
- `poller`: reads and writes sockets with epoll, without the loop's transports
- `send_request`: encodes send requests, decodes their responses
- `syscalls`: epoll, recv and send
- `text_writer`: writes numbers and strings at a pointer
- `tls_session`: one TLS connection, without its socket
- `unique_ids`: ids that are unique across processes and time
- `write_buffer`: a growing byte buffer for frames
"""
