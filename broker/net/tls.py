"""ServerTls: the TLS of a server's listeners and of its own connections, with certificates that may change.

Loop thread; files are read in a thread of their own, which alone touches `_watched`, `_loaded` and `_warned_s`.
"""

import asyncio
import logging
import os
import ssl
import time
from collections.abc import Mapping
from typing import NamedTuple

from firearrow._native.wire.tls_session import SUPPORTED, TlsContext
from firearrow.broker.base.errors import StartError
from firearrow.broker.base.file_reads import FileReader
from firearrow.broker.base.tls import (
    HTTP_PROTOCOLS,
    TlsFault,
    TlsSettings,
    client_context,
    expiry,
    server_context,
    settings_of,
)

log = logging.getLogger("firearrow.tls")

WATCH_S = 0.5
"""How often the files are looked at, as Apache does."""
WARN_AGAIN_S = 86_400.0
"""How often a certificate that has expired, or soon will have, is reported."""
FIRST_BYTE = 0x16
"""The first byte of a TLS handshake; no frame begins with it, as it would have 352 MiB."""

Signature = tuple[tuple[int, int, int] | None, ...]


class Loaded(NamedTuple):
    """`listening`, `http` and `connecting`: see ServerTls."""

    settings: TlsSettings
    listening: ssl.SSLContext | None
    http: ssl.SSLContext | None
    connecting: ssl.SSLContext | None


class ServerTls:
    """`listening` is the context of new connections to us, None: they cannot speak TLS; `http` that of those that speak
    HTTP/1.1; `connecting` that of connections to other servers, None: they are plain. `pairs`: the options of TLS.
    StartError: the files cannot be used any more."""

    def __init__(self, pairs: Mapping[str, str]) -> None:
        self._pairs = pairs
        self.listening: ssl.SSLContext | None = None
        self.http: ssl.SSLContext | None = None
        self.connecting: ssl.SSLContext | None = None
        self.session_context: TlsContext | None = None
        self._watching: asyncio.TimerHandle | None = None
        self._warned_s = 0.0
        self._files = FileReader("the TLS files", self._read, self._take)
        try:
            self._settings = settings_of(pairs)
            self.enforcing = self._settings.mode == "enforcing"
            self._watched = self._settings.watched()
            self._loaded = self._signature()
            self._use(_contexts(self._settings))
        except TlsFault as fault:
            raise StartError(str(fault)) from None
        self._warn_of_expiry()

    @property
    def settings(self) -> TlsSettings:
        return self._settings

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Read the files again whenever they change. Connections that exist keep what they have."""
        if self._watched and self._watching is None:
            self._watching = loop.call_later(WATCH_S, self._look, loop)

    def stop(self) -> None:
        if self._watching is not None:
            self._watching.cancel()

    def _use(self, loaded: Loaded) -> None:
        self._settings, self.listening, self.http, self.connecting = loaded
        if self.listening is None or not SUPPORTED:
            return
        if self.session_context is None:
            self.session_context = TlsContext(self.listening, enforcing=self.enforcing)
        else:
            self.session_context.replace(self.listening)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        self._files.start(loop)
        self._watching = loop.call_later(WATCH_S, self._look, loop)

    def _read(self) -> Loaded | TlsFault | None:
        """What the files state now, if they have changed; in the thread that reads them."""
        if time.time() - self._warned_s >= WARN_AGAIN_S:
            self._warn_of_expiry()
        if (now := self._signature()) == self._loaded:
            return None
        self._loaded = now
        try:
            settings = settings_of(self._pairs)
            if settings.mode != self._settings.mode:
                raise TlsFault(f"tls.server.mode would be {settings.mode}: restart to change it")
            self._watched = settings.watched()
            self._loaded = self._signature()
            loaded = _contexts(settings)
        except TlsFault as fault:
            return fault
        self._warn_of_expiry(settings)
        return loaded

    def _take(self, found: Loaded | TlsFault | None) -> None:
        if isinstance(found, TlsFault):
            log.warning("the TLS files have changed, but those loaded before stay in use: %s", found)
        elif found is not None:
            self._use(found)
            log.info("the TLS files have changed: new connections use them")

    def _signature(self) -> Signature:
        """What changes when a file is written or replaced."""
        return tuple(_state(path) for path in self._watched)

    def _warn_of_expiry(self, settings: TlsSettings | None = None) -> None:
        self._warned_s = time.time()
        settings = settings or self._settings
        for path in (settings.server.certificate, settings.client.certificate):
            if path and (warning := expiry(path)) is not None:
                log.warning("%s", warning)


def _contexts(settings: TlsSettings) -> Loaded:
    """TlsFault."""
    return Loaded(
        settings,
        server_context(settings) if settings.listens else None,
        server_context(settings, HTTP_PROTOCOLS) if settings.listens else None,
        client_context(settings) if settings.outgoing else None,
    )


def _state(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
