"""What the log warns of at the start: ports that other hosts reach, without users or without TLS. Loop thread."""

import logging

from firearrow.broker.base.peer import Address
from firearrow.broker.net.tls import ServerTls

log = logging.getLogger("firearrow.auth")

LOOPBACK = ("127.0.0.1", "::1")


def warn_of_open_ports(addresses: list[Address], may: str, *, users: bool, tls: ServerTls) -> None:
    """Report what others may do at those ports that they can reach, and how to change that; nothing with TLS and
    users."""
    opened = [f"{host}:{port}" for host, port in addresses if host not in LOOPBACK]
    warnings = []
    if not users:
        warnings.append(
            f"any client that reaches these ports can {may}; to require users, set authenticationEnabled, "
            "authorizationEnabled and initAuthenticationUser (docs/SECURITY.md)"
        )
    if tls.listening is None:
        warnings.append(
            "others can read messages on the way; to encrypt, `firearrow tls init`, then add --tls-cert and "
            "--tls-key as it prints"
        )
    if opened and warnings:
        log.warning("%s: %s", ", ".join(opened), ". And ".join(warnings))
