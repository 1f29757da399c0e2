"""The unique ids of this process: Java's form, with the local month. Any thread."""

import datetime
import functools
import os
import socket

from firearrow._native.wire.uniqueid import UniqueIds
from firearrow.client.link.identity import local_ip

JAVA_PROCESS_MASK = 0xFFFF


@functools.cache
def unique_ids() -> UniqueIds:
    """One for the process, so that no two producers make the same id."""
    ip = local_ip()
    family = socket.AF_INET6 if ip.startswith("[") else socket.AF_INET
    host = socket.inet_pton(family, ip.strip("[]"))
    return UniqueIds(host, os.getpid() & JAVA_PROCESS_MASK, os.urandom(4), _month_of)


def _month_of(now_ms: int) -> tuple[int, int]:
    """When the local month of this moment began and when the next begins, in ms."""
    now = datetime.datetime.fromtimestamp(now_ms / 1000)
    began = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    ends = (began + datetime.timedelta(days=32)).replace(day=1)
    return int(began.timestamp() * 1000), int(ends.timestamp() * 1000)
