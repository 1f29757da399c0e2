"""Bytes on the socket: frames, headers, connections, buffers. Knows no store and no topic.

- `buffer_pool`: a pool of buffers for large frames
- `codes`: Request, response and language codes, flag bits and the protocol version
- `command`: one request or answer as a Python object
- `connection`: one peer on an asyncio or uvloop transport
- `fast_send`: the fast path for plain messages
- `fastjson`: What fastjson 1.x makes of Java's maps and no JSON parser reads: keys that are objects or
  bare, a last comma
- `frame`: Finds whole frames in a byte window and refuses bad lengths
- `header`: scans a command's header in place, JSON or binary
- `json`: JSON text scanned in place: makes no objects and converts only whole numbers
- `limits`: Limits of input from the network
- `message_properties`: Messages to send in wire format
- `pending_calls`: a connection of a client
- `poller`: sockets that are read and written without the loop's transports
- `send_request`: Requests that send messages, and their answers
- `syscalls`: epoll: which sockets are ready
- `text_writer`: Numbers and strings written at a pointer
- `unique_ids`: ids that are unique across processes and time
- `write_buffer`: A growing byte buffer for frames: big-endian numbers, JSON strings, patched lengths
"""
