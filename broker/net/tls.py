"""ServerTls: the TLS of a server's listeners and of its own connections, with certificates that may change.

Loop thread.
"""

import asyncio
import logging
import os
import ssl
from collections.abc import Iterator

from firearrow._native.wire.tls_session import SUPPORTED, TlsContext
from firearrow.broker.base.errors import StartError
from firearrow.broker.base.tls import TlsFault, TlsSettings, client_context, expiry, server_context

log = logging.getLogger("firearrow.tls")

WATCH_S = 0.5
"""How often the files are looked at, as Apache does."""
FIRST_BYTE = 0x16
"""The first byte of a TLS handshake; no frame begins with it, as it would have 352 MiB."""

Signature = tuple[tuple[int, int, int] | None, ...]


class ServerTls:
    """`listening` is the context of new connections to us, None: they cannot speak TLS; `connecting` that of
    connections to other servers, None: they are plain. StartError: the files cannot be used any more."""

    def __init__(self, settings: TlsSettings) -> None:
        self._settings = settings
        self.enforcing = settings.mode == "enforcing"
        self.listening: ssl.SSLContext | None = None
        self.connecting: ssl.SSLContext | None = None
        self.session_context: TlsContext | None = None
        self._watching: asyncio.TimerHandle | None = None
        try:
            self._load()
        except TlsFault as fault:
            raise StartError(str(fault)) from None
        for warning in self._expiries():
            log.warning("%s", warning)

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Read the files again whenever they change. Connections that exist keep what they have."""
        if self._settings.watched() and self._watching is None:
            self._watching = loop.call_later(WATCH_S, self._look, loop, self._signature())

    def stop(self) -> None:
        if self._watching is not None:
            self._watching.cancel()

    def _load(self) -> None:
        """TlsFault; then nothing has changed."""
        listening = server_context(self._settings) if self._settings.listens else None
        connecting = client_context(self._settings) if self._settings.outgoing else None
        self.listening, self.connecting = listening, connecting
        if listening is None or not SUPPORTED:
            return
        if self.session_context is None:
            self.session_context = TlsContext(listening, enforcing=self.enforcing)
        else:
            self.session_context.replace(listening)

    def _look(self, loop: asyncio.AbstractEventLoop, before: Signature) -> None:
        now = self._signature()
        if now != before:
            try:
                self._load()
            except TlsFault as fault:
                log.warning("the TLS files have changed, but those loaded before stay in use: %s", fault)
            else:
                log.warning("the TLS files have changed: new connections use them")
                for warning in self._expiries():
                    log.warning("%s", warning)
        self._watching = loop.call_later(WATCH_S, self._look, loop, now)

    def _signature(self) -> Signature:
        """What changes when a file is written or replaced."""
        return tuple(_state(path) for path in self._settings.watched())

    def _expiries(self) -> Iterator[str]:
        for path in (self._settings.server.certificate, self._settings.client.certificate):
            if path and (text := expiry(path)) is not None:
                yield text


def _state(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
