"""Message ids: the offset id that names a record's place, and the unique id that a client (else the broker) gives."""

import datetime
import functools
import os
import random
import socket
import struct


@functools.lru_cache(maxsize=4096)
def host_bytes(ip: str, port: int) -> bytes:
    """4 or 16 address bytes and an i32 port, as records hold hosts. A mapped IPv4 address is an IPv4 address."""
    if ip.startswith("::ffff:") and "." in ip:
        ip = ip[7:]
    family = socket.AF_INET6 if ":" in ip else socket.AF_INET
    return socket.inet_pton(family, ip.partition("%")[0]) + struct.pack(">i", port)


def offset_id(store_host: bytes, physical_offset: int) -> str:
    """32 hex digits (IPv4) or 56 (IPv6): the host of the store and the record's physical offset."""
    return (store_host + struct.pack(">q", physical_offset)).hex().upper()


def offset_of(message_id: str) -> int:
    """The physical offset that an offset id names. ValueError when it is none."""
    if len(message_id) not in (32, 56):
        raise ValueError(f"{len(message_id)} characters, not 32 or 56")
    return int.from_bytes(bytes.fromhex(message_id)[-8:], signed=True)


class UniqueIds:
    """Java's form: address 4, process 2, maker 4, milliseconds since the month began 4, counter 2 bytes; in hex."""

    def __init__(self, ip: bytes) -> None:
        self._prefix = ip[-4:] + struct.pack(">HI", os.getpid() & 0xFFFF, random.getrandbits(32))
        self._month_ends_ms = 0
        self._month_began_ms = 0
        self._count = random.getrandbits(16)

    def next(self, now_ms: int) -> str:
        if now_ms >= self._month_ends_ms:
            self._turn_month(now_ms)
        self._count = (self._count + 1) & 0xFFFF
        since = (now_ms - self._month_began_ms) & 0xFFFFFFFF
        return (self._prefix + struct.pack(">IH", since, self._count)).hex().upper()

    def _turn_month(self, now_ms: int) -> None:
        now = datetime.datetime.fromtimestamp(now_ms / 1000).astimezone()
        began = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        ends = (began + datetime.timedelta(days=32)).replace(day=1)
        self._month_began_ms = int(began.timestamp() * 1000)
        self._month_ends_ms = int(ends.timestamp() * 1000)
