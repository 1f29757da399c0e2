"""Compiled code: `wire` (bytes on the socket) and `store` (bytes on the disk)."""
