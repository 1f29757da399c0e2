"""NameServers: which name server is asked: one while it answers, then the next. Loop thread."""

import asyncio
import logging
import random
import urllib.request

from firearrow._native.wire.command import RemotingCommand
from firearrow.client.base.errors import ConfigError, NoNameServer, TransportError
from firearrow.client.base.options import ClientOptions
from firearrow.client.remoting.channels import Channels, host_port

log = logging.getLogger("firearrow.client")

ANSWER_BYTES_MAX = 1 << 16
FETCH_S = 5


class NameServers:
    def __init__(self, channels: Channels, options: ClientOptions) -> None:
        self._channels = channels
        self._options = options
        self._addresses: list[str] = []
        self._chosen = 0
        if options.name_server:
            self.update(options.name_server)

    @property
    def addresses(self) -> tuple[str, ...]:
        return tuple(self._addresses)

    def update(self, text: str) -> None:
        """Take the addresses of `host:port;host:port` (a URL stands for its last part). ConfigError."""
        parts = [part.strip().rpartition("/")[2] for part in text.split(";") if part.strip()]
        if not parts:
            raise ConfigError(f"name_server {text!r}: `host:port` is wanted, several separated by `;`")
        for part in parts:
            host_port(part)
        if set(parts) != set(self._addresses):
            random.shuffle(parts)
            self._addresses, self._chosen = parts, 0

    async def fetch(self) -> None:
        """Ask `name_server_url`, if no addresses were given. Failures are logged; the old addresses stay."""
        url = self._options.name_server_url
        if self._options.name_server or url is None:
            return
        if self._options.unit_name:
            url = f"{url}-{self._options.unit_name}?nofix=1"
        try:
            self.update(await asyncio.to_thread(_get, url))
        except (OSError, ConfigError) as error:
            log.warning("name servers from %s: %s", url, error)

    async def call(self, command: RemotingCommand, timeout_s: float | None = None) -> RemotingCommand:
        """The answer of the first that gives one. NoNameServer, TransportError (of the last that was tried)."""
        if not self._addresses:
            raise NoNameServer("no name server: set name_server, or NAMESRV_ADDR in the environment")
        failure: TransportError | None = None
        for _ in range(len(self._addresses)):
            address = self._addresses[self._chosen % len(self._addresses)]
            try:
                return await self._channels.call(address, command, timeout_s or self._options.api_timeout_s)
            except TransportError as error:
                failure = error
                self._chosen += 1
        assert failure is not None
        raise failure

    async def call_all(self, command: RemotingCommand) -> list[RemotingCommand]:
        """The same request to every name server, for changes that each must hear of."""
        return [
            await self._channels.call(address, command, self._options.api_timeout_s)
            for address in self._addresses
        ]


def _get(url: str) -> str:
    if not url.startswith(("http://", "https://")):
        raise ConfigError(f"name_server_url {url!r}: http or https is wanted")
    with urllib.request.urlopen(url, timeout=FETCH_S) as answer:
        return str(answer.read(ANSWER_BYTES_MAX).decode().strip())
