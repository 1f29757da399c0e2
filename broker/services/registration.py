"""Registrar: registers the broker with name servers: the one of this process, and others over TCP.

Other name servers get all topics at start and every period, and changed topics at once. Each has a separate
task, so a slow one delays no other. A failure is logged when it begins and when it ends; topics that were not
sent go with the next registration. Loop thread.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from firearrow._native.protocol import fastjson
from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.base.errors import Refusal, StartError
from firearrow.broker.base.peer import Address, Peer
from firearrow.broker.tables.json_fields import members, members_or_none
from firearrow.broker.tables.kv import ORDER_TOPIC_CONFIG, KvTable
from firearrow.broker.tables.registration import BrokerAnnouncement, BrokerIdentity
from firearrow.broker.tables.routes import MASTER_ID, RouteTable
from firearrow.broker.tables.topics import TopicTable

log = logging.getLogger("firearrow.registration")

Connect = Callable[[str, int], Awaitable[Peer]]
Announce = Callable[[Collection[str] | None], BrokerAnnouncement]
"""The topics of these names, or all of them."""

CONNECT_S = 3.0
ANSWER_S = 24.0
RETRY_S = 1.0
BATCH_CHANGES_S = 0.05
"""Topics that change within this time are sent together."""
PERIOD_S = (10.0, 60.0)
WATCH_S, FIRST_WATCH_S = 3.0, 3.0
NAME_SERVERS_MAX = 16

KEYS_HINT = " (set innerClientAuthenticationCredentials to the keys of a user that may register)"


class RegistrationError(Exception):
    """A name server refused a registration, or its answer is malformed."""


class Registrar:
    """`permission` returns brokerPermission; `own` is the name server of this process."""

    def __init__(
        self,
        identity: BrokerIdentity,
        topics: TopicTable,
        *,
        permission: Callable[[], int],
        own: tuple[RouteTable, KvTable] | None,
        others: Sequence[Address],
        connect: Connect,
        period_ms: int,
    ) -> None:
        self._identity = identity
        self._topics = topics
        self._permission = permission
        self.epoch: Callable[[], int] = lambda: 0
        """Of the master: by it, a name server prefers the newer of two masters (Apache: stateVersion)."""
        self.answered: Callable[[Mapping[str, str]], None] = lambda ext: None
        """Gets the fields of each answer, in which a slave finds its master."""
        self._own = own
        self._period_s = min(max(period_ms / 1000, PERIOD_S[0]), PERIOD_S[1])
        self._others = [
            RemoteNameServer(
                address,
                identity,
                self._announcement,
                connect,
                self._set_ordered_topics,
                self._answer,
                self._registered,
            )
            for address in others
        ]
        self.watch: Callable[[Peer, str], Awaitable[None]] | None = None
        """Called before and after each registration, and each WATCH_S, with the name server and our address there."""
        self._watched = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def is_registered(self) -> bool:
        """Whether a name server has this broker, or there is none to have it."""
        return self._own is not None or not self._others or any(other.has_us for other in self._others)

    @property
    def registers(self) -> bool:
        """Whether no name server of another process has this broker yet, and none has failed."""
        return bool(self._others) and not self.fault and not any(other.has_us for other in self._others)

    @property
    def fault(self) -> str:
        """Why no name server of another process has this broker; empty: one has it, or nothing is known yet."""
        if any(other.has_us for other in self._others):
            return ""
        return next((other.fault for other in self._others if other.fault), "")

    def name_servers(self) -> list[dict[str, object]]:
        """Those of other processes: whether each has this broker, and why the last registration failed."""
        return [
            {"address": other.address, "registered": other.has_us, "fault": other.fault}
            for other in self._others
        ]

    def start(self) -> None:
        """Register all topics everywhere; our own name server has them when this returns. Needs the running
        loop."""
        self._announce_own(None)
        self._tasks = [asyncio.ensure_future(other.run(self._period_s)) for other in self._others]
        if self._own is not None:
            self._tasks.append(asyncio.ensure_future(self._refresh_own()))
        if self.watch is not None:
            self._tasks.append(asyncio.ensure_future(self._watch_others()))

    def changed(self, names: Collection[str]) -> None:
        """Topics were created, changed or deleted. Name servers delete a topic only on request (216)."""
        if not self._tasks:
            return
        known = [name for name in names if name in self._topics]
        if known:
            self._announce_own(known)
            for other in self._others:
                other.changed(known)

    def refresh(self) -> None:
        """Register all topics again now, for what the answers state."""
        for other in self._others:
            other.refresh()

    def heartbeat(self, code: int) -> None:
        """Report to the name servers to which we are connected that we live, with `code`: BROKER_HEARTBEAT or, with the
        version of the topics, QUERY_DATA_VERSION."""
        body = b""
        if code == RequestCode.QUERY_DATA_VERSION:
            body = fastjson.dumps(self._topics.version.to_object())
        for other in self._others:
            other.heartbeat(code, body)

    async def ask(self, code: int, ext: Mapping[str, str], timeout_s: float) -> RemotingCommand:
        """The answer of the first name server that gives one, whatever its code. OSError: none does."""
        error = OSError("no name server is configured")
        for other in self._others:
            try:
                peer = await other.connected()
                return await peer.ask(RemotingCommand.request(code, dict(ext)), timeout_s)
            except OSError as fault:
                error = fault
        raise error

    async def stop(self) -> None:
        """Unregister everywhere, without waiting for answers."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        if self._own is not None:
            self._own[0].unregister(self._identity.cluster, self._identity.address(""), own=True)
        for other in self._others:
            other.leave()

    async def watched(self) -> None:
        """Wait until one name server was asked for the first time, at most FIRST_WATCH_S."""
        if self._others:
            with suppress(TimeoutError):
                async with asyncio.timeout(FIRST_WATCH_S):
                    await self._watched.wait()

    async def _watch_others(self) -> None:
        while True:
            await asyncio.sleep(WATCH_S)
            for other in self._others:
                await other.look()

    def _answer(self, ext: Mapping[str, str]) -> None:
        self.answered(ext)

    async def _registered(self, name_server: Peer, host: str) -> None:
        if self.watch is not None:
            await self.watch(name_server, self._identity.address(host))
            self._watched.set()

    def _announcement(self, names: Collection[str] | None) -> BrokerAnnouncement:
        if names is None:
            configs = self._topics.configs()
        else:
            configs = [config for name in names if (config := self._topics.get(name)) is not None]
        version = self._topics.version
        if self._identity.broker_id == MASTER_ID:
            version = version._replace(state_version=self.epoch())
        return BrokerAnnouncement.of(self._identity, version, configs, self._permission())

    def _announce_own(self, names: Collection[str] | None) -> None:
        if self._own is None:
            return
        try:
            self._own[0].register(self._announcement(names).registration(), None)
        except Refusal as refusal:
            log.error("the name server of this process refused the registration: %s", refusal.remark)

    async def _refresh_own(self) -> None:
        """Register again what was deleted there but not here, as at any name server."""
        while self._own is not None:
            await asyncio.sleep(self._period_s)
            routes, kv = self._own
            self._set_ordered_topics(kv.namespace(ORDER_TOPIC_CONFIG) or ())
            missing = [
                name for name in self._topics if self._identity.broker not in routes.topics.get(name, ())
            ]
            if missing:
                self._announce_own(missing)

    def _set_ordered_topics(self, names: Collection[str]) -> None:
        """Mark topics as ordered that a name server lists as ordered; none is ever unmarked."""
        known = [
            config for name in names if (config := self._topics.get(name)) is not None and not config.order
        ]
        if known:
            self._topics.update_all(replace(config, order=True, attributes={}) for config in known)


class RemoteNameServer:
    """One name server of another process, and the topics not sent to it yet (`None`: all)."""

    def __init__(
        self,
        address: Address,
        identity: BrokerIdentity,
        announce: Announce,
        connect: Connect,
        set_ordered: Callable[[Collection[str]], None],
        answered: Callable[[Mapping[str, str]], None],
        registered: Callable[[Peer, str], Awaitable[None]],
    ) -> None:
        self._registered_there = registered
        self._address = address
        self._identity = identity
        self._announce = announce
        self._connect = connect
        self._set_ordered = set_ordered
        self._answered = answered
        self._peer: Peer | None = None
        self._connecting = asyncio.Lock()
        self._unsent: set[str] | None = None
        self._wake = asyncio.Event()
        self._failing = self._registered = False
        self.fault = ""
        """Why the last registration failed; empty: it did not."""

    @property
    def address(self) -> str:
        host, port = self._address
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    @property
    def has_us(self) -> bool:
        """Whether it answered our registration on the connection that is open."""
        return self._registered and self._peer is not None and not self._peer.closed

    def changed(self, names: Collection[str]) -> None:
        if self._unsent is not None:
            self._unsent.update(names)
        self._wake.set()

    def refresh(self) -> None:
        self._unsent = None
        self._wake.set()

    async def run(self, period_s: float) -> None:
        while True:
            self._wake.clear()
            try:
                await self._send_changes()
            except Exception as error:  # whatever it is: name servers forget a broker that registers no more
                self._failed(error)
                await asyncio.sleep(RETRY_S)
                continue
            self._succeeded()
            await asyncio.sleep(BATCH_CHANGES_S)
            try:
                async with asyncio.timeout(period_s):
                    await self._wake.wait()
            except TimeoutError:
                self._unsent = None
            if self._peer is None or self._peer.closed:
                await asyncio.sleep(RETRY_S)

    def leave(self) -> None:
        """Unregister if we are connected, and disconnect."""
        peer, self._peer = self._peer, None
        if peer is None or peer.closed:
            return
        ext = self._identity.ext(self._host(peer))
        peer.oneway(RemotingCommand.request(RequestCode.UNREGISTER_BROKER, ext, oneway=True))
        peer.close()

    async def look(self) -> None:
        """As after a registration, if it has one of this broker's."""
        if self._peer is not None and self.has_us:
            await self._registered_there(self._peer, self._host(self._peer))

    def heartbeat(self, code: int, body: bytes) -> None:
        peer = self._peer
        if peer is not None and self.has_us:
            peer.oneway(
                RemotingCommand.request(code, self._identity.ext(self._host(peer)), body, oneway=True)
            )

    async def connected(self) -> Peer:
        """The connection, opened if need be. OSError."""
        async with self._connecting:
            if self._peer is None or self._peer.closed:
                async with asyncio.timeout(CONNECT_S):
                    self._peer = await self._connect(*self._address)
                self._peer.on_close(self._closed)
                self._unsent = None
            return self._peer

    async def _send_changes(self) -> None:
        peer = await self.connected()
        if self._unsent is None:
            await self.look()  # a broker that registered with our id since is not shown after this
        names, self._unsent = self._unsent, set()
        if names is not None and not names:
            return
        try:
            await self._register(peer, self._announce(names))
        except BaseException:
            self._unsent = None if names is None or self._unsent is None else self._unsent | names
            raise

    async def _register(self, peer: Peer, announcement: BrokerAnnouncement) -> None:
        for body in await asyncio.to_thread(lambda: list(announcement.bodies())):
            ext = announcement.ext(self._host(peer), body)
            answer = await peer.ask(RemotingCommand.request(RequestCode.REGISTER_BROKER, ext, body), ANSWER_S)
            if answer.code != ResponseCode.SUCCESS:
                hint = KEYS_HINT if answer.code == ResponseCode.NO_PERMISSION else ""
                raise RegistrationError(f"it refused with code {answer.code}: {answer.remark}{hint}")
            self._answered(answer.ext)
            if answer.body:
                table = members(fastjson.loads(answer.body), "the order topics").get("table")
                self._set_ordered(members_or_none(table, "table"))
        await self._registered_there(peer, self._host(peer))

    def _host(self, peer: Peer) -> str:
        """Our host as this name server shall report it to clients."""
        return self._identity.bound or peer.local[0].removeprefix("::ffff:")

    def _closed(self, peer: Peer) -> None:
        """Register again: a name server removes a broker whose connection is closed."""
        if peer is self._peer:
            self._wake.set()

    def _failed(self, error: Exception) -> None:
        text = str(error) or type(error).__name__
        self.fault = (
            f"the name server {self._address[0]}:{self._address[1]} does not have this broker: {text}"
        )
        if not self._failing:
            log.warning("cannot register with name server %s:%d, will try again: %s", *self._address, text)
        self._failing, self._registered = True, False
        if self._peer is not None and isinstance(error, OSError):
            self._peer.close()

    def _succeeded(self) -> None:
        if self._failing:
            log.info("registered with name server %s:%d again", *self._address)
        self._failing, self._registered, self.fault = False, True, ""


def addresses(text: str, own: Address | None = None) -> list[Address]:
    """The addresses of namesrvAddr (`host:port;host:port`), each once, without the name server of this
    process.

    StartError names the wrong one.
    """
    found: dict[Address, None] = {}
    for address in text.replace(",", ";").split(";"):
        if not address.strip():
            continue
        host, _, port = address.strip().rpartition(":")
        if not (host and port.isascii() and port.isdigit() and 0 < int(port[:6]) <= 65535):
            raise StartError(f"namesrvAddr must be host:port;host:port, not {address[:80]!r}")
        found[host.removeprefix("[").removesuffix("]"), int(port)] = None
    found = {each: None for each in found if own is None or not _is_own(each, own)}
    if len(found) > NAME_SERVERS_MAX:
        raise StartError(f"namesrvAddr names {len(found)} name servers, at most {NAME_SERVERS_MAX}")
    return list(found)


def _is_own(address: Address, own: Address) -> bool:
    """Whether `address` is where we listen (`own`), perhaps on every address."""
    host, port = address
    everywhere = own[0] in ("0.0.0.0", "::")
    here = host in ("localhost", "::1") or host.startswith("127.")
    return port == own[1] and (
        host == own[0] or (everywhere and here) or (host == "localhost" and own[0] == "127.0.0.1")
    )
