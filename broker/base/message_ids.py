"""Message ids: offset ids, which contain a record's physical offset, and unique ids."""

import functools
import os
import socket
import struct

from firearrow._native.wire.unique_ids import UniqueIds


@functools.lru_cache(maxsize=4096)
def host_bytes(ip: str, port: int) -> bytes:
    """4 or 16 address bytes and an i32 port, as records hold hosts. A mapped IPv4 address is an IPv4
    address."""
    if ip.startswith("::ffff:") and "." in ip:
        ip = ip[7:]
    family = socket.AF_INET6 if ":" in ip else socket.AF_INET
    return socket.inet_pton(family, ip.partition("%")[0]) + struct.pack(">i", port)


def host_text(host: bytes) -> str:
    """`ip:port` of a host as records hold it."""
    family = socket.AF_INET if len(host) == 8 else socket.AF_INET6
    return f"{socket.inet_ntop(family, host[:-4])}:{int.from_bytes(host[-4:])}"


def offset_id(store_host: bytes, physical_offset: int) -> str:
    """32 hex digits (IPv4) or 56 (IPv6): the host of the store and the record's physical offset."""
    return (store_host + struct.pack(">q", physical_offset)).hex().upper()


def offset_of(message_id: str) -> int:
    """The physical offset in an offset id. ValueError when the id is malformed."""
    if len(message_id) not in (32, 56):
        raise ValueError(f"{len(message_id)} characters, not 32 or 56")
    return int.from_bytes(bytes.fromhex(message_id)[-8:], signed=True)


def unique_ids(store_host: bytes) -> UniqueIds:
    """Creates unique ids for messages without one; no other broker or process creates the same."""
    return UniqueIds(store_host[:-4], os.getpid(), os.urandom(4))
