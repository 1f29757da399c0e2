import ssl

SUPPORTED: bool
"""Whether the OpenSSL of Python's `ssl` module can be called here."""

class TlsError(Exception):
    """The handshake failed or the peer broke the protocol; the text says how."""

class TlsContext:
    """TLS of listeners: the context of new connections, and whether others are closed (`enforcing`).

    A first byte 0x16 begins TLS; anything else is a plain connection. RuntimeError: not `SUPPORTED`.
    """

    def __init__(self, context: ssl.SSLContext, *, enforcing: bool) -> None: ...
    @property
    def context(self) -> ssl.SSLContext: ...
    @property
    def enforcing(self) -> bool: ...
    def replace(self, context: ssl.SSLContext) -> None:
        """Use this context for new connections; the others keep theirs."""
