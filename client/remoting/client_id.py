"""The client id that brokers know this client by, and the local address in it. Opens no connection."""

import functools
import socket

from firearrow.client.base.options import ClientOptions

DEFAULT_INSTANCE = "DEFAULT"
ANY_IP = ("0.0.0.0", "::")
"""Of a socket without a route."""


def build_client_id(options: ClientOptions, *, broadcasting: bool = False, stream: bool = False) -> str:
    """`ip@instance[@unit][@STREAM]`.

    For broadcasting it survives restarts: local offsets are stored under it.
    """
    name = options.instance_name or (DEFAULT_INSTANCE if broadcasting else options.own_name)
    fields = [options.client_ip or local_ip(), name]
    if options.unit_name:
        fields.append(options.unit_name)
    if stream:
        fields.append("STREAM")
    return "@".join(fields)


@functools.cache
def local_ip() -> str:
    """The local address of connections to other machines, else the loopback address; IPv6 in brackets."""
    for family, remote_ip in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect((remote_ip, 9))  # sends nothing: it is a datagram socket
            except OSError:
                continue
            ip = str(probe.getsockname()[0])
        if ip not in ANY_IP:
            return f"[{ip}]" if ":" in ip else ip
    return "127.0.0.1"
