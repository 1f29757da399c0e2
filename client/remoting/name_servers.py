"""NameServers: calls one name server until it fails or is slow, then the next. Loop thread."""

import asyncio
import logging
import random

from firearrow._native.wire.command import RemotingCommand
from firearrow.client.base.errors import ConfigError, NoNameServer
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
        """Set the addresses from `host:port;host:port` (a URL: the text after the last `/`). ConfigError."""
        addresses = [item.strip().rpartition("/")[2] for item in text.split(";") if item.strip()]
        if not addresses:
            raise ConfigError(f"name_server must be `host:port`, several separated by `;`, not {text!r}")
        for address in addresses:
            host_port(address)
        if set(addresses) != set(self._addresses):
            random.shuffle(addresses)
            self._addresses, self._chosen = addresses, 0

    async def fetch(self) -> None:
        """Get the addresses from `name_server_url` if `name_server` is empty.

        Failures are logged; old addresses stay.
        """
        url = self._options.name_server_url
        if self._options.name_server or url is None:
            return
        if self._options.unit_name:
            url = f"{url}-{self._options.unit_name}?nofix=1"
        try:
            self.update(await asyncio.to_thread(_get, url))
        except (OSError, ConfigError) as error:
            log.info("could not get the name servers from %s: %s", url, error)

    async def call(self, command: RemotingCommand, timeout_s: float | None = None) -> RemotingCommand:
        """The answer of the first name server that answers; the one that answered last is called first.

        NoNameServer, and the errors of `Channels.call_first`.
        """
        if not self._addresses:
            raise NoNameServer(
                "no name server is configured: set name_server, or NAMESRV_ADDR in the environment"
            )
        addresses = [*self._addresses[self._chosen :], *self._addresses[: self._chosen]]
        answer, address = await self._channels.call_first(
            addresses, lambda: command, timeout_s or self._options.api_timeout_s
        )
        if address in self._addresses:  # not replaced meanwhile
            self._chosen = self._addresses.index(address)
        return answer

    async def call_all(self, command: RemotingCommand) -> list[RemotingCommand]:
        """Send a change to every name server. TransportError: at least one did not answer."""
        return [
            await self._channels.call(address, command, self._options.api_timeout_s)
            for address in self._addresses
        ]


def _get(url: str) -> str:
    if not url.startswith(("http://", "https://")):
        raise ConfigError(f"name_server_url must begin with http:// or https://, not {url!r}")
    from urllib import request  # noqa: PLC0415 (slow: brings http, email and tempfile)

    with request.urlopen(url, timeout=FETCH_S) as answer:
        return str(answer.read(ANSWER_BYTES_MAX).decode().strip())
