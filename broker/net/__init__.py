"""Listeners, connections and the dispatch of request codes.

- `acceptor`: accepts connections at all addresses of a host
- `connection_limits`: limits of connections and their buffers, and which connections to close at a limit
- `dispatch`: calls the handler of a request code and turns its result or error into an answer
- `durable_replies`: delays answers to requests that change a table until its file is written, as Apache does
- `open_ports`: warns of ports that other hosts reach, without users or without TLS
- `proxy_protocol`: the PROXY protocol of HAProxy: a connection's real addresses, sent before its first byte
- `refusals`: the last requests that were refused, and how many were by reason
- `server`: listeners and their connections, idle closing, drain
- `tls`: the TLS of a server's listeners and own connections, with certificates that may change
"""
