"""The unique ids of this process: Java's form. Any thread."""

import functools
import os
import socket

from firearrow._native.wire.unique_ids import UniqueIds
from firearrow.client.remoting.client_id import local_ip


@functools.cache
def unique_ids() -> UniqueIds:
    """One for the process, so that no two producers make the same id."""
    ip = local_ip()
    family = socket.AF_INET6 if ip.startswith("[") else socket.AF_INET
    host = socket.inet_pton(family, ip.strip("[]"))
    return UniqueIds(host, os.getpid(), os.urandom(4))
