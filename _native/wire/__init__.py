"""Bytes on the socket: frames, headers, commands, connections. Knows no store and no topic."""
