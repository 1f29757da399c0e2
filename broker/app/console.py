"""ConsoleProcess: `firearrow console` as a child of the broker, which runs only while it is visited.

The broker holds the listening socket. The first connection starts the child, which accepts it and all others; after
ten minutes without a visit the child ends by itself, and the broker waits for the next connection. A broker without
`consoleListen` imports nothing of this, and one that is not visited has a socket more. The child reads the end of its
standard input when the broker ends, however it ends. Loop thread.
"""

import asyncio
import contextlib
import importlib.util
import logging
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from firearrow._native.base.command_line import how_to_install
from firearrow.broker.base.errors import StartError
from firearrow.broker.base.options import Options
from firearrow.broker.base.peer import Address, is_loopback
from firearrow.broker.base.tls import TlsSettings, server_name

log = logging.getLogger("firearrow.console")

MODULE = "firearrow.client.console"
NEEDED = (MODULE, "starlette", "uvicorn", "jinja2")
BACKLOG = 128
AGAIN_S = 5.0
"""Until a child that failed is started again."""
STOP_S = 3.0


class ConsoleProcess:
    """`idle_s`: after how long without a visit the child ends. `arguments`: others, such as how it reaches brokers."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        listening: socket.socket,
        idle_s: int,
        arguments: Sequence[str],
    ) -> None:
        self._loop = loop
        self._listening = listening
        self._arguments = [*arguments, "--idle", str(idle_s), "--fd", str(listening.fileno())]
        self._child: asyncio.subprocess.Process | None = None
        self._running: asyncio.Task[None] | None = None
        self._again: asyncio.TimerHandle | None = None
        self._stopped = False

    @property
    def address(self) -> Address:
        host, port = self._listening.getsockname()[:2]
        return str(host), int(port)

    def wait(self) -> None:
        """Wait for a connection."""
        if not self._stopped:
            self._loop.add_reader(self._listening, self._visited)

    def _visited(self) -> None:
        self._loop.remove_reader(self._listening)
        self._running = self._loop.create_task(self._run())

    async def _run(self) -> None:
        """Start the child, which accepts the connection, and wait for its end."""
        code: int | None = None
        try:
            self._child = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", MODULE, *self._arguments),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.DEVNULL,
                pass_fds=(self._listening.fileno(),),
            )
            log.info("the console runs: process %d", self._child.pid)
            code = await self._child.wait()
        except OSError as error:
            log.error("the console cannot be started: %s", error)
        self._child = None
        if self._stopped:
            return
        if code == 0:
            log.info("the console has ended, and starts again at the next visit")
            self.wait()
        else:
            log.error(
                "the console has failed with exit code %s; it can be visited again in %d s", code, AGAIN_S
            )
            self._again = self._loop.call_later(AGAIN_S, self.wait)

    async def stop(self) -> None:
        """End the child."""
        self._stopped = True
        self._loop.remove_reader(self._listening)
        if self._again is not None:
            self._again.cancel()
        if self._child is not None:
            with contextlib.suppress(ProcessLookupError):
                self._child.terminate()
        if self._running is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(STOP_S):
                    await asyncio.shield(self._running)
        if self._child is not None:
            with contextlib.suppress(ProcessLookupError):
                self._child.kill()
        self._listening.close()


@asynccontextmanager
async def console(
    loop: asyncio.AbstractEventLoop,
    options: Options,
    name_servers: list[Address],
    tls: TlsSettings,
) -> AsyncIterator[Address]:
    """The console can be visited; where. StartError."""
    host, _, port = options.console_listen.rpartition(":")
    host = host.strip("[]")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise StartError(f"consoleListen must be HOST:PORT, not {options.console_listen!r}")
    _check(options, host, name_servers, tls)
    try:
        listening = _listen(host, int(port))
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise StartError(f"the console cannot listen on {options.console_listen}: {reason}") from None
    text = ";".join(
        f"[{name}]:{number}" if ":" in name else f"{name}:{number}" for name, number in name_servers
    )
    arguments = ["--namesrv", text, *_certificates(options, tls), *_limits(options)]
    process = ConsoleProcess(loop, listening, options.console_idle_ms // 1000, arguments)
    process.wait()
    try:
        yield process.address
    finally:
        await process.stop()


def _certificates(options: Options, tls: TlsSettings) -> list[str]:
    """Those of the context; else the broker's own is what the child trusts, under whichever address it reaches it."""
    if options.console_context:
        return ["--context", options.console_context]
    if tls.mode != "enforcing":
        return []
    return ["--authority", tls.server.certificate, f"--server-name={server_name(tls.server.certificate)}"]


def _limits(options: Options) -> list[str]:
    chosen = {"--read-only": options.console_read_only, "--mask-bodies": options.console_mask_bodies}
    return [name for name, is_chosen in chosen.items() if is_chosen]


def _check(options: Options, host: str, name_servers: list[Address], tls: TlsSettings) -> None:
    """StartError: it would be open to others, or could not reach the broker."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise StartError(
            f"the console needs the Python package {missing[0]}: {how_to_install('console', missing[0])}, or start "
            "without consoleListen"
        )
    if not (host == "localhost" or is_loopback(host)) and not options.authentication:
        raise StartError(
            f"consoleListen={options.console_listen}: the broker has no users, so everyone there could do everything; "
            "set authenticationEnabled=true, or listen on 127.0.0.1"
        )
    if not name_servers:
        raise StartError("the console needs a name server: set --namesrv-listen or --namesrv")
    if (
        tls.mode == "enforcing"
        and not options.console_context
        and (tls.made or tls.client_auth is ssl.CERT_REQUIRED)
    ):
        raise StartError(
            "the console has no certificate of its own, and trusts the file of tls.server.certPath: without the one or "
            "with tls.server.need.client.auth=require set consoleContext to a context with certificates, which "
            "`firearrow context add` makes"
        )


def _listen(host: str, port: int) -> socket.socket:
    family, kind, _, _, target = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listening = socket.socket(family, kind)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(target)
        listening.listen(BACKLOG)
        listening.setblocking(False)
    except OSError:
        listening.close()
        raise
    return listening
