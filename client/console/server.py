"""Serve a web console for a cluster, FireArrow's or Apache's."""

import argparse
import asyncio
import contextlib
import ipaddress
import logging
import os
import socket
import sys
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import uvicorn

from firearrow.client.base.errors import ClientError, ConfigError
from firearrow.client.cli.command import Call, Command, positive
from firearrow.client.cli.contexts import chosen_context
from firearrow.client.cli.messages.body_formats import NAMES, BodyFormat, body_format
from firearrow.client.console import actions, message_pages, pages
from firearrow.client.console.app import Console, application
from firearrow.client.console.connections import configured
from firearrow.client.console.sessions import Gate

log = logging.getLogger("firearrow.console")

LISTEN = "127.0.0.1:8088"
CHECK_S = 1.0
NICENESS = 5


def declared() -> Command:
    """The command."""
    command = Command("console", __doc__)
    verb = command.only(serve)
    verb.argument(
        "--listen", default=LISTEN, metavar="HOST:PORT", help=f"where the console listens (default {LISTEN})"
    )
    verb.argument("--read-only", action="store_true", help="offer no actions")
    verb.argument(
        "--mask-bodies", action="store_true", help="show no bodies of messages, whatever a user may do"
    )
    verb.argument(
        "--schema",
        action="append",
        default=[],
        metavar="TOPIC=FORMAT",
        help=f"format of the bodies of a topic: {NAMES}; may be repeated",
    )
    verb.argument(
        "--jobs",
        action="append",
        default=[],
        metavar="FOLDER",
        help="show the jobs of `firearrow spark` that were run in this folder; may be repeated",
    )
    verb.argument("--tls-cert", metavar="FILE", help="serve HTTPS with this certificate; needs --tls-key")
    verb.argument("--tls-key", metavar="FILE", help="private key of --tls-cert")
    verb.argument("--fd", type=int, help=argparse.SUPPRESS)
    verb.argument("--authority", help=argparse.SUPPRESS)
    verb.argument("--server-name", default="", help=argparse.SUPPRESS)
    verb.argument("--idle", type=positive, help=argparse.SUPPRESS)
    return command


def main(arguments: Sequence[str]) -> int:
    return declared().run(arguments)


async def serve(call: Call) -> int:
    """Serve a web console for a cluster, until it is stopped. Visitors sign in as users of the brokers; a console of
    brokers without users listens on this machine only.

        firearrow console --namesrv '10.0.0.1:9876;10.0.0.2:9876'
        firearrow console --listen 0.0.0.0:8088 --tls-cert cert.pem --tls-key key.pem
    """
    given = call.arguments
    if (given.tls_cert is None) != (given.tls_key is None):
        raise ConfigError("--tls-cert and --tls-key need each other")
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    log.setLevel(logging.INFO)
    listening = _listen(given.listen, given.fd)
    context = chosen_context(given.context, given.namesrv)
    if given.authority is not None:  # the certificate of the broker that started this process
        context = replace(context, tls=True, authority=given.authority, server_name=given.server_name)
    gate = Gate(context, given.timeout)
    host, port = listening.getsockname()[:2]
    console = Console(
        gate,
        read_only=given.read_only,
        mask_bodies=given.mask_bodies,
        job_folders=given.jobs,
        formats=dict(map(_format_of, given.schema)),
        cookie=f"firearrow_console_{port}",
        secure=given.tls_cert is not None,
        is_loopback=ipaddress.ip_address(host).is_loopback,
    )
    try:
        if not console.is_loopback:
            await _check_users(gate, f"{host}:{port}")
        server = _server(console, given)
        scheme = "https" if console.secure else "http"
        shown = f"[{host}]" if ":" in host else host
        if given.fd is None:
            print(f"firearrow console: {scheme}://{shown}:{port}", flush=True)
        async with _ending(console, server, given):
            await server.serve(sockets=[listening])
    finally:
        await console.close()
        listening.close()
    return 0


def _format_of(text: str) -> tuple[str, BodyFormat]:
    """The topic, and the format of its bodies. ConfigError."""
    topic, _, name = text.partition("=")
    found = body_format(name)
    if not topic or found is None:
        raise ConfigError(f"--schema: {text!r} is not TOPIC=FORMAT with a format of {NAMES}")
    return topic, found


def _listen(address: str, fd: int | None) -> socket.socket:
    """ConfigError: the address cannot be read or used."""
    if fd is not None:
        os.nice(NICENESS)  # the broker shares this machine
        return socket.socket(fileno=fd)
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise ConfigError(f"--listen: {address!r} is not HOST:PORT")
    try:
        family, kind, _, _, target = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)[0]
        made = socket.socket(family, kind)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(target)
        made.listen(128)
    except UnicodeError:  # of a name such as ..
        raise ConfigError(f"--listen: {host!r} is not a machine's name") from None
    except OSError as error:
        raise ConfigError(f"--listen: cannot listen on {address}: {error.strerror or error}") from None
    return made


async def _check_users(gate: Gate, address: str) -> None:
    """ConfigError: everyone who reaches this address could do everything."""
    try:
        await gate.look()
    except ClientError as error:
        raise ConfigError(
            f"--listen {address}: it is not known whether the brokers have users: {error}; start them first"
        ) from None
    if not gate.has_users:
        raise ConfigError(
            f"--listen {address}: the brokers have no users, so everyone there could do everything; start them with "
            "authenticationEnabled=true, or listen on 127.0.0.1"
        )


def _server(console: Console, given: argparse.Namespace) -> uvicorn.Server:
    """ConfigError: the certificate or the key cannot be used."""
    app = application(
        console,
        {**pages.PAGES, **message_pages.PAGES, **actions.PAGES},
        {**pages.FORMS, **actions.FORMS},
    )
    config = configured(app, given.tls_cert, given.tls_key)
    try:
        config.load()
    except OSError as error:  # of TLS as well
        raise ConfigError(f"--tls-cert, --tls-key: {error.strerror or error}") from None
    return uvicorn.Server(config)


@contextlib.asynccontextmanager
async def _ending(console: Console, server: uvicorn.Server, given: argparse.Namespace) -> AsyncIterator[None]:
    """A console that a broker started ends with the broker, or after `--idle` seconds without a visit."""
    if given.fd is None:
        yield
        return
    loop = asyncio.get_running_loop()

    def broker_ended() -> None:
        if not os.read(sys.stdin.fileno(), 64):
            loop.remove_reader(sys.stdin.fileno())
            server.should_exit = True

    async def watch() -> None:
        while not server.should_exit:
            await asyncio.sleep(CHECK_S)
            idle_s = time.monotonic() - console.used_s
            if (
                given.idle is not None
                and not console.running
                and not console.jobs.running
                and idle_s > given.idle
            ):
                server.should_exit = True

    loop.add_reader(sys.stdin.fileno(), broker_ended)
    watching = asyncio.create_task(watch())
    try:
        yield
    finally:
        watching.cancel()
        loop.remove_reader(sys.stdin.fileno())
