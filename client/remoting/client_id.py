"""Who we are: our address, the client id that brokers know us by. Knows no socket of the instance."""

import functools
import ipaddress
import socket

from firearrow.client.base.options import ClientOptions

DEFAULT_INSTANCE = "DEFAULT"


def build_client_id(options: ClientOptions, *, broadcasting: bool = False, stream: bool = False) -> str:
    """`ip@instance[@unit][@STREAM]`. Broadcasting keeps its name over restarts: local offsets lie under it."""
    name = options.instance_name or (DEFAULT_INSTANCE if broadcasting else options.generated_name)
    parts = [options.client_ip or local_ip(), name]
    if options.unit_name:
        parts.append(options.unit_name)
    if stream:
        parts.append("STREAM")
    return "@".join(parts)


@functools.cache
def local_ip() -> str:
    """The address from which other machines are reached, else that of the loopback; IPv6 in brackets."""
    for family, elsewhere in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect((elsewhere, 9))  # a datagram socket sends nothing for this
            except OSError:
                continue
            ip = str(probe.getsockname()[0])
        if not ipaddress.ip_address(ip).is_unspecified:
            return f"[{ip}]" if ":" in ip else ip
    return "127.0.0.1"
