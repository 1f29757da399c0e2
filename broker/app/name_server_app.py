"""NameServerApp: the process of `firearrow namesrv`, a name server alone. A composition root.

Stops in the opposite order of its start: the scan, the connections, the file. Loop thread.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from firearrow._native.wire.connection import ByteProtocol
from firearrow.broker.app.name_server import NameServer
from firearrow.broker.auth.access import Access
from firearrow.broker.base import auth_options, systemd, tls
from firearrow.broker.base.clock import Clock
from firearrow.broker.base.config import ConfigError, apply, read, report_restart, report_unread
from firearrow.broker.base.config_keys import security_fault, unknown
from firearrow.broker.base.errors import Refusal, StartError
from firearrow.broker.base.log_output import announce, announce_ready
from firearrow.broker.base.options import PROXIES_KEY, Options, networks_of, options_by_key
from firearrow.broker.base.peer import Address, Peer
from firearrow.broker.base.process import StopSignals, seconds_since_start
from firearrow.broker.handlers.access_routes import access_routes
from firearrow.broker.net.dispatch import Dispatch
from firearrow.broker.net.durable_replies import reply_when_saved
from firearrow.broker.net.open_ports import warn_of_open_ports
from firearrow.broker.net.server import Server, ServerConnection
from firearrow.broker.net.tls import ServerTls
from firearrow.broker.services.table_saver import TableSaver
from firearrow.broker.services.thread_watch import LOOK_S, ThreadWatch
from firearrow.broker.services.timers import Periodic
from firearrow.broker.tables.config_file import ConfigFile
from firearrow.broker.tables.kv import KvTable
from firearrow.broker.tables.naming_options import ACTING, NamingOptions

log = logging.getLogger("firearrow.app")

STOP_S = 1.0
OWN = ("bindAddress", "listenPort", "kvConfigPath")
"""Options that have an effect at the start."""
FIXED = (*OWN, *(key for key, option in ACTING.items() if option.fixed))
USER_FIELDS = [(key, options_by_key()[key].name) for key in auth_options.NAME_SERVER_KEYS]
IDLE_S = 120
FRAME_BYTES_MAX = 16 << 20
NO_BROKER = "this name server has no broker: clients of gRPC connect to a broker, at any of its ports"


class NameServerConfig(NamedTuple):
    """`tls`: the options of TLS. `users`: those of users and rules, of which a broker has the same."""

    naming: NamingOptions
    tls: Mapping[str, str]
    users: Options


def options_of(path: Path | None, tls_pairs: Mapping[str, str] = MappingProxyType({})) -> NameServerConfig:
    """The options in a file such as Apache's `namesrv.conf`, judged as those of the broker are. `tls_pairs`: options
    of TLS that override it.

    OSError, ConfigError.
    """
    pairs = read(path) if path is not None else {}
    options = NamingOptions()
    fault = security_fault(pairs, (*tls.KEYS, *auth_options.NAME_SERVER_KEYS), tuple(options))
    if fault is not None:
        raise ConfigError(fault)
    of_tls = {key: pairs.pop(key) for key in tls.KEYS if key in pairs} | dict(tls_pairs)
    if (fault := tls.fault_of(of_tls)) is not None:
        raise ConfigError(fault)
    of_users = {key: pairs.pop(key) for key in auth_options.NAME_SERVER_KEYS if key in pairs}
    users = apply(Options(), of_users)
    for fault in auth_options.auth_faults(users, off=auth_options.switched_off(of_users)):
        raise ConfigError(fault)
    for key in [key for key in pairs if key not in options]:
        report_key(path, f"unknown key {unknown(key, options)}")
        del pairs[key]
    for key in [key for key in pairs if key not in ACTING and key not in OWN]:
        if pairs[key] != options[key]:
            report_key(path, f"{key} has no effect here")
            del pairs[key]
    try:
        return NameServerConfig(NamingOptions(pairs), of_tls, users)
    except Refusal as refusal:
        raise ConfigError(f"{path}: {refusal.remark}") from None


def report_key(path: Path | None, fault: str) -> None:
    log.warning("%s: %s", path, fault)


class ConfigReader:
    """Reads the name server's file again while it runs, but for the options of TLS. `config`: that of the start."""

    def __init__(self, path: Path | None, config: NameServerConfig) -> None:
        self._path = path
        self._options = options = config.naming
        self._users = config.users
        self._tls = config.tls
        self._at_start = {key: options[key] for key in FIXED}

    def load_again(self) -> NameServerConfig | None:
        """What the file states now; None if it cannot be used, which is logged. Any thread."""
        try:
            return options_of(self._path, self._tls)
        except (OSError, ValueError) as error:
            report_unread(error)
            return None

    def take(self, loaded: NameServerConfig | None) -> None:
        """Change the options to these, as far as they can change while the name server runs. The log states what
        changes, and what needs a restart. None: nothing changes."""
        if loaded is None:
            return
        fresh, _, users = loaded
        changes = {key: fresh[key] for key in ACTING if key not in FIXED and fresh[key] != self._options[key]}
        for key, text in changes.items():
            log.info("%s=%s, it was %s", key, text, self._options[key])
        restart = [key for key in FIXED if fresh[key] != self._at_start[key]]
        restart += [key for key, name in USER_FIELDS if getattr(users, name) != getattr(self._users, name)]
        report_restart("name server", restart)
        self._options.change(changes)


class NameServerApp:
    """KV entries are kept in `kvConfigPath`; by default, in `~/firearrow/namesrv/kvConfig.json`. `listen` None:
    as the options state. `reload` is called on SIGHUP; without it, SIGHUP stops the name server."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        listen: Address | None,
        config: NameServerConfig,
        reload: Callable[[], None] | None = None,
    ) -> None:
        self._loop = loop
        self._reload = reload
        options = config.naming
        self._tls, self._users = ServerTls(config.tls), config.users
        self._listen = listen or (options["bindAddress"], options.number("listenPort"))
        self._options = options

    async def run(self) -> None:
        """Serve until SIGTERM or SIGINT. StartError when it cannot."""
        async with AsyncExitStack() as running:
            saver, stopping, clock = TableSaver(self._loop), asyncio.Event(), Clock()
            kv_file = self._kv_file()
            access = self._access(kv_file, saver, clock)
            running.callback(access.close)
            running.callback(saver.stop)
            passed = systemd.PassedSockets()
            server = Server(
                self._loop, idle_s=IDLE_S, frame_bytes_max=FRAME_BYTES_MAX, passed=passed, tls=self._tls
            )
            server.trust_proxies(networks_of(PROXIES_KEY, self._options[PROXIES_KEY]))
            running.push_async_callback(server.close, STOP_S)
            self._tls.start(self._loop)
            running.callback(self._tls.stop)
            connect = partial(server.connect, sign=access.sign)
            naming = NameServer(clock, self._options, partial(saver.schedule, "kv"), connect)
            _keep_kv(naming.kv, kv_file, saver)
            own = access_routes(access, self._users, clock)
            routes = [reply_when_saved(each, saver) for each in (*naming.handlers(), *own)]
            dispatch = Dispatch(routes, check=access.check)
            host, port = await server.listen(*self._listen, dispatch)
            server.http2 = _refuse_grpc
            server.start_serving()
            passed.close()
            naming.describe((host, port), kv_file)
            naming.start(self._loop)
            running.callback(naming.stop)
            running.callback(self._watch(saver).stop)
            StopSignals(self._loop, self._reload).handle(stopping.set)
            may = "register brokers and read routes"
            warn_of_open_ports([(host, port)], may, users=access.check is not None, tls=self._tls)
            line = f"firearrow ready: name server {host}:{port}, {seconds_since_start():.2f} s"
            announce_ready(line)
            systemd.notify(systemd.READY, f"STATUS={line}")
            await stopping.wait()
            systemd.notify(systemd.STOPPING)
        announce(f"firearrow stopped: name server {host}:{port}")

    def _watch(self, saver: TableSaver) -> Periodic:
        """Look at the threads from now on; what waits for one that has ended is refused."""

        def stopped(reason: str) -> None:
            systemd.notify(f"STATUS={reason}")
            saver.finish()

        threads, periodic = ThreadWatch(self._loop, None, stopped), Periodic(self._loop)
        for thread in saver.threads:
            threads.watch(thread)
        periodic.every(LOOK_S, threads.look)
        return periodic

    def _access(self, kv_file: Path | None, saver: TableSaver, clock: Clock) -> Access:
        """Users and rules are in the folder of the KV entries. StartError: a file cannot be used."""
        if not self._users.authentication:
            return Access()
        if kv_file is None:
            raise StartError("authenticationEnabled=true needs a folder for users: set kvConfigPath or HOME")
        from firearrow.broker.auth.broker_facts import ClusterFacts  # noqa: PLC0415 (most name servers check nothing)
        from firearrow.broker.auth.user_access import UserAccess  # noqa: PLC0415

        facts, folder = ClusterFacts(self._users.cluster_name), kv_file.parent
        return UserAccess(self._users, facts, folder, saver, clock, _count_no_login)

    def _kv_file(self) -> Path | None:
        """None: KV entries are kept in no file."""
        try:
            return Path(
                self._options["kvConfigPath"] or Path.home() / "firearrow" / "namesrv" / "kvConfig.json"
            )
        except RuntimeError:
            log.warning(
                "KV entries are lost when the name server stops, as there is no home folder: set HOME"
            )
            return None


def _keep_kv(kv: KvTable, path: Path | None, saver: TableSaver) -> None:
    """Load the KV entries from their file, and save them there after changes. StartError."""
    if path is None:
        saver.add("kv", lambda: None)
        return
    file = ConfigFile(path)
    file.load(kv.load)
    saver.add("kv", lambda: file.write(kv.to_json()))


def _refuse_grpc(connection: ServerConnection) -> ByteProtocol | None:
    """What a client of gRPC gets, instead of a closed connection; None: libnghttp2 is missing."""
    from firearrow._native.http2.session import (  # noqa: PLC0415 (few need it)
        Http2Unavailable,
        refusing_session,
    )

    try:
        return refusing_session(connection, NO_BROKER)
    except Http2Unavailable as error:
        log.info("a client of gRPC cannot be answered: %s", error)
        return None


def _count_no_login(peer: Peer, user: str) -> None:
    """There are no quotas here."""
