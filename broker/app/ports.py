"""Ports: where the broker and its name server listen, and what answers there.

The name server answers at once, so that brokers which start together find each other; the broker's ports are bound, but
serve connections only from `Server.start_serving` on. Loop thread.
"""

import logging
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from firearrow._native.fastpath.fast_connection import FastHandler
from firearrow._native.fastpath.fast_dispatch import CompleteDispatch
from firearrow._native.fastpath.send_message import Sender
from firearrow._native.wire.codes import RequestCode
from firearrow.broker.app.fast_path import FastPathSetup
from firearrow.broker.app.foundation import Foundation
from firearrow.broker.app.state import KV_FILE, State
from firearrow.broker.base.errors import StartError
from firearrow.broker.base.memory_limits import LEAST, Shares
from firearrow.broker.base.message_ids import host_bytes
from firearrow.broker.base.options import Options
from firearrow.broker.base.peer import Address, Routes
from firearrow.broker.net.dispatch import Dispatch
from firearrow.broker.net.durable_replies import reply_when_saved
from firearrow.broker.net.open_ports import LOOPBACK, warn_of_open_ports
from firearrow.broker.net.refusals import RefusalLog
from firearrow.broker.net.server import Server
from firearrow.broker.replication.failover.role import HA_PORT_GAP
from firearrow.broker.services.registration import addresses

log = logging.getLogger("firearrow.app")

VIP_PORT_GAP = 2
DEFAULT_GRPC_PORT = 8081
VIP_TRIES = 50
ANY_HOST = {"0.0.0.0", "::", ""}
NOT_ON_VIP = (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)


class FastHandlers:
    """What new connections get: until `serve`, all their requests are left to the dispatch."""

    def __init__(self, complete: CompleteDispatch) -> None:
        self._complete = complete
        self.broker: FastHandler = complete
        self.vip: FastHandler = complete
        self.sender: Sender | None = None
        """Takes plain sends of gRPC; None: all go to the handlers."""

    def serve(self, fast_path: FastPathSetup, server: Server, vip_port: int) -> None:
        """Use the fast path from now on, also on the connections that exist."""
        self.broker, self.vip = fast_path.fast_dispatch, fast_path.vip_dispatch
        self.sender = fast_path.sender
        for connection in server.connections:
            if connection.fast_handler is self._complete:
                connection.fast_handler = self.vip if connection.local[1] == vip_port else self.broker


@dataclass(frozen=True, eq=False, repr=False)
class Ports:
    """`asked`: the broker's port in the options. `naming`: of the name server in this process; None: it has none, and
    `naming_routes` is empty. `name_servers`: of other processes. `store_host`: the broker's address in records."""

    address: Address
    vip: Address
    asked: int
    naming: Address | None
    naming_routes: list[Routes]
    name_servers: list[Address]
    store_host: bytes
    dispatch: Dispatch
    vip_dispatch: Dispatch
    grpc_dispatch: Dispatch
    fast_handlers: FastHandlers
    refusals: RefusalLog

    def serve(self, broker_routes: Iterable[Routes]) -> None:
        """The broker's requests, and those of the name server, which clients send to any port."""
        routes = [*broker_routes, *self.naming_routes]
        self.dispatch.add(routes)
        self.vip_dispatch.add(routes, without=NOT_ON_VIP)
        self.grpc_dispatch.add(routes)

    def set_memory(self, shares: Shares) -> None:
        for dispatch in (self.dispatch, self.vip_dispatch, self.grpc_dispatch):
            dispatch.running_bytes_max = max(shares.requests // 2, LEAST.requests)

    def in_progress(self) -> int:
        """How many requests are being handled."""
        return self.dispatch.in_progress + self.grpc_dispatch.in_progress

    async def drain(self) -> None:
        """Wait for the handlers that are still running."""
        await self.dispatch.drain()
        await self.grpc_dispatch.drain()


async def listen(base: Foundation, state: State) -> Ports:
    """Bind the ports of the options; `Server.close` closes them. StartError."""
    start, access, options = base.start, state.access, base.options
    check_collisions(options, start.naming)
    refusals = RefusalLog(base.clock)
    naming, naming_routes = None, list[Routes]()
    if start.naming is not None:
        naming_routes = [reply_when_saved(routes, base.saver) for routes in state.name_server.handlers()]
        naming = await _listen_naming(base, state, start.naming, naming_routes, refusals)
    dispatch, vip_dispatch = (
        Dispatch((), refusals, access.check, state.quotas, access.held) for _ in range(2)
    )
    grpc_dispatch = Dispatch((), refusals, None, state.quotas, access.held)  # calls are checked before it
    fast_handlers = FastHandlers(CompleteDispatch(base.held_pulls))
    address, vip = await _listen_with_vip(base.server, options, dispatch, vip_dispatch, fast_handlers)
    start.passed.close()
    base.config.set_port(address[1])
    ports = Ports(
        address,
        vip,
        options.listen_port,
        naming,
        naming_routes,
        addresses(options.name_servers, naming),
        host_bytes(_advertised_address(options), base.options.client_port),
        dispatch,
        vip_dispatch,
        grpc_dispatch,
        fast_handlers,
        refusals,
    )
    base.memory.listen(ports.set_memory)
    return ports


def check_collisions(options: Options, naming: Address | None) -> None:
    """StartError: two options need the same port, of which the second one would find it in use. `naming`: the address
    of the name server in this process."""
    needed = [("--listen", options.bind_address, options.listen_port)]
    if options.listen_port:
        needed.append(
            ("the VIP port, two below --listen", options.bind_address, options.listen_port - VIP_PORT_GAP)
        )
    if naming is not None:
        needed.append(("--namesrv-listen", *naming))
    if options.metrics_exporter == "PROM":
        needed.append(("--http", options.metrics_host or LOOPBACK[0], options.metrics_port))
    if options.grpc_port != DEFAULT_GRPC_PORT:  # which is left out if it is in use
        needed.append(("grpcServerPort", options.bind_address, options.grpc_port))
    if options.ha_port:
        needed.append(("haListenPort", options.bind_address, options.ha_port))
    elif not options.is_slave and (options.broker_role == "SYNC_MASTER" or options.acting_master):
        gap = HA_PORT_GAP if options.listen_port else 0
        what = "the replication port, one above --listen (haListenPort sets another)"
        needed.append((what, options.bind_address, options.listen_port + gap))
    for number, (what, host, port) in enumerate(needed):
        for other, other_host, other_port in needed[:number]:
            if port == other_port != 0 and (host == other_host or ANY_HOST & {host, other_host}):
                raise StartError(
                    f"port {port} is needed twice, by {other} and by {what}: give one of them another port"
                )


async def _listen_naming(
    base: Foundation, state: State, asked: Address, routes: list[Routes], refusals: RefusalLog
) -> Address:
    dispatch = Dispatch(routes, refusals, state.access.check, instead=state.name_server.instead())
    address = await base.server.listen(*asked, dispatch, option="--namesrv-listen")
    state.name_server.describe(address, Path(base.options.store_root) / "config" / KV_FILE)
    base.server.start_serving()
    return address


async def _listen_with_vip(
    server: Server, options: Options, dispatch: Dispatch, vip_dispatch: Dispatch, fast_handlers: FastHandlers
) -> tuple[Address, Address]:
    """Listen on the broker's port and on the VIP port two below it, to which old Java clients send. Port
    0 finds a free pair. StartError."""
    check_port(options.listen_port)
    host = options.bind_address
    for _ in range(VIP_TRIES if options.listen_port == 0 else 1):
        address = await server.listen(host, options.listen_port, dispatch, lambda: fast_handlers.broker)
        try:
            vip = await server.listen(
                host, address[1] - VIP_PORT_GAP, vip_dispatch, lambda: fast_handlers.vip
            )
        except StartError as error:
            server.stop_listening(address)
            if options.listen_port:
                place = f"the VIP port, {VIP_PORT_GAP} below the broker's port {address[1]}"
                raise StartError(f"cannot open {place}: {error}") from None
            continue
        log.info("broker on %s:%d, VIP port %d", *address, vip[1])
        return address, (address[0], vip[1])
    raise StartError("no free pair of ports was found: choose the broker's port with --listen")


def check_port(port: int) -> None:
    """StartError: there is no VIP port two below this one."""
    if port in range(1, VIP_PORT_GAP + 1):
        raise StartError(
            f"port {port} leaves none for the VIP port two below it: use a higher one in --listen"
        )


def hint_at_loopback(base: Foundation, state: State, ports: Ports) -> None:
    """Report how to accept connections from other hosts, with the ports that were asked for, and what others may do at
    ports that they reach."""
    hints, asked = [], base.start.naming
    if ports.address[0] in LOOPBACK:
        hints.append(f"--listen 0.0.0.0:{ports.asked}")
    if ports.naming is not None and asked is not None and ports.naming[0] in LOOPBACK:
        hints.append(f"--namesrv-listen 0.0.0.0:{asked[1]}")
    if hints:
        log.info("listening on loopback only; to accept connections from other hosts: %s", " ".join(hints))
    reached = [ports.address, *([] if ports.naming is None else [ports.naming])]
    may = "read, send and delete everything"
    warn_of_open_ports(reached, may, users=state.access.check is not None, tls=base.tls)


def _advertised_address(options: Options) -> str:
    """One fixed address for records and message ids: brokerIP1, the bound one, or the address of the host's name."""
    if options.broker_ip:
        try:
            return _address_of(options.broker_ip)
        except OSError:
            log.warning("brokerIP1=%s has no address here: message ids name another one", options.broker_ip)
    if options.bind_address not in ("0.0.0.0", "::"):
        return _address_of(options.bind_address)
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return "127.0.0.1"


def _address_of(host: str) -> str:
    name = host.encode() if host.isascii() else host  # of a str, Python imports the tables for IDNA
    return str(socket.getaddrinfo(name, None)[0][4][0])
