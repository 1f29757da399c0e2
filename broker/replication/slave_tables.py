"""SlaveSynchronize: copies the master's tables, each second (Apache: each minute); MasterRole: its role;
MasterReplicas: the slaves that it expects. Loop thread.

Topics, groups and the timer's metrics are copied when their data version changes; the others have none that
tells each change, and are copied when their bytes differ. Progress (offsets, delays, timers) takes effect once our log
has all that the master's had when it was asked for: it passes over work whose outcome is in the log. A master that
does not know a request (4.9: 402, 60, 61) is not asked again until it changes its address.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

from firearrow._native.store.message_store import MessageStore
from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.base import fastjson
from firearrow.broker.base.peer import Address
from firearrow.broker.context.broker_context import BrokerContext, Tables
from firearrow.broker.replication.expected_replicas import ExpectedReplica, parsed
from firearrow.broker.replication.pair_identity import MASTER_ROLES
from firearrow.broker.replication.slave_master import Master, MasterError, SlaveStatus, State
from firearrow.broker.tables import json_fields
from firearrow.broker.tables.dataversion import DataVersion
from firearrow.broker.tables.groups import GroupConfig
from firearrow.broker.tables.topics import TopicConfig

log = logging.getLogger("firearrow.slave")

PERIOD_S, ROLE_PERIOD_S, REPLICAS_PERIOD_S = 1.0, 0.1, 5.0
SHARE = 10
"""Copying takes at most this part of the time."""
PAGE = 2000
PAGES_MAX = 1000
IN_THREAD_BYTES = 1 << 16
"""Larger bodies are parsed in a thread."""
ANSWER_S = 10.0
POLL_PAGE = "1"


class FollowedTimers(Protocol):
    """What a slave sets of the timer."""

    def follow(self, check_point: bytes) -> None: ...
    def follow_metrics(self, text: bytes) -> None: ...


class CopiedProgress(NamedTuple):
    """What takes a master's progress. `delays`: loads the body of delayOffset.json. `timers`: None with
    timerWheelEnable=false."""

    delays: Callable[[bytes], None]
    timers: FollowedTimers | None


class PendingAnswer(NamedTuple):
    """A master's answer, and where its log ended then or later."""

    body: bytes
    end: int


class PagedTable:
    """The requests of a table with a data version that is answered in pages. `names`: of its fields."""

    def __init__(self, code: int, begin: str, size: str, total: str) -> None:
        self.code, self._begin, self._size, self._total = code, begin, size, total

    def ext(self, begin: int, size: str, version: DataVersion | None) -> dict[str, str]:
        text = "" if version is None else fastjson.dumps(version.to_object()).decode()
        return {self._begin: str(begin), self._size: size, "dataVersion": text}

    def total(self, answer: RemotingCommand) -> int | None:
        """None: all is in this answer."""
        return answer.integer(self._total, 32) if self._total in answer.ext else None


TOPICS = PagedTable(RequestCode.GET_ALL_TOPIC_CONFIG, "topicSeq", "maxTopicNum", "totalTopicNum")
GROUPS = PagedTable(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, "groupSeq", "maxGroupNum", "totalGroupNum")


class SlaveSynchronize:
    """`pushed()`: the master pushes its tables, so it is not asked."""

    def __init__(
        self,
        context: BrokerContext,
        master: Master,
        progress: CopiedProgress,
        *,
        pushed: Callable[[], bool],
    ) -> None:
        self._tables = context.tables
        self._store = context.store
        self._loop = context.loop
        self._saver = context.saver
        self._master = master
        self._delays = progress.delays
        self._pushed = pushed
        self._timers = progress.timers
        self._copies: dict[int, Callable[[], Awaitable[None]]] = {
            TOPICS.code: self._copy_topics,
            GROUPS.code: self._copy_groups,
            RequestCode.GET_ALL_CONSUMER_OFFSET: self._copy_offsets,
            RequestCode.GET_ALL_DELAY_OFFSET: self._copy_delays,
            RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: self._copy_modes,
        }
        if progress.timers is not None:
            self._copies[RequestCode.GET_TIMER_METRICS] = self._copy_timer_metrics
            self._copies[RequestCode.GET_TIMER_CHECK_POINT] = self._copy_check_point
        self._copying = asyncio.Lock()
        self._of: Address | None = None
        self._unknown: set[int] = set()
        self._faults: dict[int, str] = {}
        self._versions: dict[int, DataVersion] = {}
        self._bodies: dict[int, bytes] = {}
        self._pending: dict[int, PendingAnswer] = {}
        """Answers whose log is not here yet, by request code."""
        self.copied_ms = 0
        """When all tables were last up to date; 0: never."""
        self._clock = context.clock

    @property
    def faults(self) -> dict[int, str]:
        """Request code → why its table was not copied the last time."""
        return dict(self._faults)

    async def run(self) -> None:
        """Copy until cancelled."""
        while True:
            began = self._loop.time()
            if not self._master.is_online:
                self._of = None  # what is copied next is taken in any case
            elif not self._pushed():
                await self.copy()
            await asyncio.sleep(max(PERIOD_S, (SHARE - 1) * (self._loop.time() - began)))

    async def copy(self) -> None:
        """All tables that have changed, once."""
        async with self._copying:
            await self._turn()

    async def _turn(self) -> None:
        if self._master.address != self._of:
            self._of = self._master.address
            self._unknown.clear()
            self._versions.clear()
            self._bodies.clear()
            self._pending.clear()
        for code, copy in self._copies.items():
            if code in self._unknown:
                continue
            if not self._master.is_online:
                return
            try:
                await copy()
            except MasterError as error:
                if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                    self._unknown.add(code)
                    self._faults.pop(code, None)
                    log.info("the master does not know request %d: its table is not copied", code)
                else:
                    self._failed(code, error)
            except (OSError, ValueError, KeyError, TypeError) as error:
                self._failed(code, error)
                if isinstance(error, OSError):
                    return
            else:
                if self._faults.pop(code, None) is not None:
                    log.info("the table of request %d is copied again", code)
        if not self._faults and not self._pending:
            self.copied_ms = self._clock.now_ms()

    def _failed(self, code: int, error: Exception) -> None:
        text = str(error) or type(error).__name__
        if code not in self._faults:
            log.warning("the master's table of request %d is not copied, trying again: %s", code, text)
        self._faults[code] = text

    # ---- topics and groups ----

    async def _copy_topics(self) -> None:
        written = self._store.written
        copied = await self._changed_table(TOPICS, "topicConfigTable")
        if copied is not None:
            configs = [TopicConfig.from_object(value) for value in copied[0].values()]
            follow_topics(self._tables, self._store, configs, copied[2], written)

    async def _copy_groups(self) -> None:
        copied = await self._changed_table(GROUPS, "subscriptionGroupTable")
        if copied is not None:
            configs = [GroupConfig.from_object(value) for value in copied[0].values()]
            self._tables.groups.follow(configs, copied[1], copied[2])

    async def _changed_table(
        self, table: PagedTable, name: str
    ) -> tuple[dict[str, Any], Mapping[str, Any], DataVersion] | None:
        """The whole table, the forbidden topics with it, and its version; None if that has not changed."""
        seen = self._versions.get(table.code)
        if seen is not None:
            answer = await self._ask(table.code, table.ext(0, POLL_PAGE, seen))
            if self._bodies.get(table.code) == answer.body:
                return None
            if _version(await _parsed(answer.body)) == seen:
                self._bodies[table.code] = answer.body
                return None
        entries: dict[str, Any] = {}
        version: DataVersion | None = None
        for _ in range(PAGES_MAX):
            answer = await self._ask(table.code, table.ext(len(entries), str(PAGE), version))
            body = await _parsed(answer.body)
            if version is not None and _version(body) != version:
                entries = {}
            version = _version(body)
            page = json_fields.members_or_none(body.get(name), name)
            before = len(entries)
            entries |= page
            total = table.total(answer)
            if total is None or len(entries) >= total or len(entries) == before:
                break
        else:
            raise ValueError(f"its table has more than {len(entries)} entries")
        assert version is not None
        self._versions[table.code] = version
        return entries, json_fields.members_or_none(body.get("forbiddenTable"), "forbiddenTable"), version

    # ---- the others ----

    async def _copy_offsets(self) -> None:
        body = await self._progress(RequestCode.GET_ALL_CONSUMER_OFFSET)
        if body is not None:
            self._tables.offsets.follow(await _parsed(body))

    async def _copy_delays(self) -> None:
        body = await self._progress(RequestCode.GET_ALL_DELAY_OFFSET)
        if body is not None:
            self._delays(body)
            self._saver.changed("delays")

    async def _copy_modes(self) -> None:
        body = await self._changed(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
        if body is not None:
            self._tables.modes.load(body)
            self._saver.schedule("modes")

    async def _copy_timer_metrics(self) -> None:
        body = await self._changed(RequestCode.GET_TIMER_METRICS)
        if body is not None and self._timers is not None:
            self._timers.follow_metrics(body)
            self._saver.changed("timermetrics")

    async def _copy_check_point(self) -> None:
        body = await self._progress(RequestCode.GET_TIMER_CHECK_POINT)
        if body is not None and self._timers is not None:
            self._timers.follow(body)

    async def _progress(self, code: int) -> bytes | None:
        """The body of the answer as soon as our log has what the master's had; None until then, and if it is the same
        as before. The next answer is asked for after that, since a newer one would have to wait again."""
        if code not in self._pending:
            body = await self._changed(code)
            if body is None:
                return None
            try:
                self._pending[code] = PendingAnswer(body, (await self._master.log_range()).end)
            except BaseException:
                self._bodies.pop(code, None)
                raise
        if self._store.written < self._pending[code].end:
            return None
        return self._pending.pop(code).body

    async def _changed(self, code: int) -> bytes | None:
        """The body of the answer; None if it is the same as before. It counts as copied when the next one comes:
        a body that cannot be applied is tried once, and its fault stays until another one comes."""
        body = (await self._ask(code)).body
        if self._bodies.get(code) == body and code not in self._faults:
            return None
        self._bodies[code] = body
        return body

    async def _ask(self, code: int, ext: dict[str, str] | None = None) -> RemotingCommand:
        return await self._master.ask(code, ext, timeout_s=ANSWER_S)


class MasterRole:
    """What the slave remembers of its master's role, so that its promotion keeps it. `heard(role)`: does; OSError."""

    def __init__(self, master: Master, status: SlaveStatus, heard: Callable[[str], None]) -> None:
        self._master = master
        self._status = status
        self._heard = heard
        self._asked: Address | None = None
        """Our end of the replication connection after whose beginning the master was asked: its role changes when it
        starts again only."""
        self._fault = ""

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            local = self._status.local
            if self._status.state is State.FOLLOWING and local is not None and local != self._asked:
                await self._ask(local)
            await asyncio.sleep(ROLE_PERIOD_S)

    async def _ask(self, local: Address) -> None:
        try:
            role = await role_of(self._master)
            if role:
                self._heard(role)
        except (OSError, MasterError) as error:
            fault = str(error) or type(error).__name__
            if fault != self._fault:
                log.info("the master's role is not known, will ask again: %s", fault)
            self._fault = fault
        else:
            self._asked, self._fault = local, ""


class MasterReplicas:
    """What the slave remembers of its master and of that one's other slaves, so that it expects them after its
    promotion. `heard(replicas)`: None: the master does not report them."""

    def __init__(
        self, master: Master, status: SlaveStatus, heard: Callable[[list[ExpectedReplica] | None], None]
    ) -> None:
        self._master = master
        self._status = status
        self._heard = heard

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            if self._status.state is not State.FOLLOWING:
                await asyncio.sleep(ROLE_PERIOD_S)
                continue
            with suppress(OSError):
                self._heard(await self._ask())
            await asyncio.sleep(REPLICAS_PERIOD_S)

    async def _ask(self) -> list[ExpectedReplica] | None:
        """OSError."""
        try:
            answer = await self._master.ask(RequestCode.GET_BROKER_HA_STATUS)
            body = json_fields.members(fastjson.loads_body(answer.body), "the answer")
            return parsed(body["members"]) if "members" in body else None
        except (MasterError, ValueError) as error:  # Apache's, or one that does not let us see it
            log.debug("the master's slaves are not known: %s", error)
            return None


async def role_of(master: Master) -> str:
    """brokerRole of a master, Apache's or ours; empty: it says that it is none. OSError, MasterError."""
    answer = await master.ask(RequestCode.GET_BROKER_CONFIG)
    for line in answer.body.decode("utf-8", "replace").splitlines():
        key, equals, value = line.partition("=")
        if equals and key.strip() == "brokerRole" and value.strip() in MASTER_ROLES:
            return value.strip()
    return ""


def follow_topics(
    tables: Tables, store: MessageStore, configs: Iterable[TopicConfig], version: DataVersion, log_end: int
) -> None:
    """Take a master's topics, which it had when its log ended at `log_end` or later. Queues and offsets of those that
    it has deleted are deleted, too: else their messages would come back with a topic of the same name."""
    known = list(tables.topics)
    tables.topics.follow(configs, version)
    for name in known:
        if name not in tables.topics:
            _delete_queues(tables, store, name, log_end)


def _delete_queues(tables: Tables, store: MessageStore, topic: str, log_end: int) -> None:
    """Unless it has messages from `log_end` on: it has been created again since."""
    if store.records_end(topic) > log_end:
        return
    tables.deleted.note(topic, store.queue_ends(topic), log_end)
    tables.offsets.remove_topic(topic)
    try:
        store.drop_topic(topic)
    except OSError as error:  # the next start tries again
        log.error("the queues of deleted topic %s cannot be deleted: %s", topic, error)


async def _parsed(body: bytes) -> json_fields.Members:
    """The JSON object. ValueError."""
    value = (
        await asyncio.to_thread(fastjson.loads, body) if len(body) > IN_THREAD_BYTES else fastjson.loads(body)
    )
    return json_fields.members(value, "the master's table")


def _version(body: json_fields.Members) -> DataVersion:
    return DataVersion.from_object(body.get("dataVersion", {}))
