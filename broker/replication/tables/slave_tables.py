"""SlaveSynchronize: copies the master's tables, each second (Apache: each minute). Loop thread.

Topics, groups and the timer's metrics are copied when their data version changes; the others have none that
grows with each change, and are copied when their bytes differ. Progress (offsets, delays, timers) takes effect once our
log has all that the master's had when it was asked for: it passes over work whose outcome is in the log. Both are asked
for in turns of their own, all of a turn at once. A master that does not know a request (4.9: 402, 60, 61) is not asked
again until it changes its address."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, NamedTuple, Protocol, TypeVar

from firearrow._native.protocol import fastjson
from firearrow._native.store.message_store import MessageStore
from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.base.peer import Address
from firearrow.broker.context.broker_context import BrokerContext, Tables
from firearrow.broker.replication.session.master_api import Master, MasterError
from firearrow.broker.tables import json_fields
from firearrow.broker.tables.dataversion import DataVersion
from firearrow.broker.tables.groups import GroupConfig
from firearrow.broker.tables.offsets import followed_offsets
from firearrow.broker.tables.topics import TopicConfig

log = logging.getLogger("firearrow.slave")

T = TypeVar("T")
Turn = Callable[[], Awaitable[float]]
"""Returns how long the master was asked, in s."""

TABLES_S, PROGRESS_S = 1.0, 0.5
"""How often each is asked for."""
PAUSES = 2
"""A master that takes long to answer is left alone for so much longer: it works for us a third of the time at most."""
REACHES_S, LOOK_S = 1.0, 0.01
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
        self, context: BrokerContext, master: Master, progress: CopiedProgress, *, pushed: Callable[[], bool]
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
            RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: self._copy_modes,
        }
        self._follows: dict[int, Callable[[bytes], Awaitable[None]]] = {
            RequestCode.GET_ALL_CONSUMER_OFFSET: self._follow_offsets,
            RequestCode.GET_ALL_DELAY_OFFSET: self._follow_delays,
        }
        if progress.timers is not None:
            self._copies[RequestCode.GET_TIMER_METRICS] = self._copy_timer_metrics
            self._follows[RequestCode.GET_TIMER_CHECK_POINT] = self._follow_check_point
        self._copying: dict[Turn, asyncio.Lock] = {
            self._copy_tables: asyncio.Lock(),
            self._copy_progress: asyncio.Lock(),
        }
        self._of: Address | None = None
        self._unknown: set[int] = set()
        self._faults: dict[int, str] = {}
        self._versions: dict[int, DataVersion] = {}
        self._bodies: dict[int, bytes] = {}
        self._pending: dict[int, PendingAnswer] = {}
        """Answers whose log is not here yet, by request code."""
        self._asked: set[Turn] = set()
        """Turns that were done since the master is this one."""
        self.copied_ms = 0
        """When all tables were last up to date; 0: never."""
        self._clock = context.clock

    @property
    def faults(self) -> dict[int, str]:
        """Request code → why its table was not copied the last time."""
        return dict(self._faults)

    async def run(self) -> None:
        """Copy until cancelled. A long table of topics holds up no offsets."""
        await asyncio.gather(
            self._repeat(self._copy_tables, TABLES_S), self._repeat(self._copy_progress, PROGRESS_S)
        )

    async def _repeat(self, turn: Turn, period_s: float) -> None:
        while True:
            asked_s = 0.0
            if not self._master.is_online:
                self._of = None  # what is copied next is taken in any case
            elif not self._pushed():
                asked_s = await self._done(turn)
            await asyncio.sleep(max(period_s - asked_s, PAUSES * asked_s))

    async def copy(self) -> None:
        """All tables that have changed, once."""
        for turn in self._copying:
            await self._done(turn)

    async def _done(self, turn: Turn) -> float:
        """How long the master was asked, in s."""
        async with self._copying[turn]:
            if self._master.address != self._of:
                self._of = self._master.address
                for known in (self._unknown, self._versions, self._bodies, self._pending, self._asked):
                    known.clear()
            asked_s = await turn()
            self._asked.add(turn)
            if len(self._asked) == len(self._copying) and not self._faults and not self._pending:
                self.copied_ms = self._clock.now_ms()
            return asked_s

    async def _copy_tables(self) -> float:
        began = self._loop.time()
        codes = [code for code in self._copies if code not in self._unknown]
        await self._all({code: self._copies[code]() for code in codes})
        return self._loop.time() - began

    async def _all(self, work: Mapping[int, Awaitable[T]]) -> dict[int, T]:
        """The results at once, of those that did not fail; the faults of the others are noted."""
        found: dict[int, T] = {}
        results = await asyncio.gather(*work.values(), return_exceptions=True)
        for code, result in zip(work, results, strict=True):
            if isinstance(result, MasterError | OSError | ValueError | KeyError | TypeError):
                self._failed(code, result)
            elif isinstance(result, BaseException):
                raise result
            else:
                found[code] = result
                if code not in self._follows:
                    self._copied(code)
        return found

    def _copied(self, code: int) -> None:
        if self._faults.pop(code, None) is not None:
            log.info("the table of request %d is copied again", code)

    def _failed(self, code: int, error: Exception) -> None:
        if isinstance(error, MasterError) and error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            self._unknown.add(code)
            self._faults.pop(code, None)
            return log.info("the master does not support request %d: its table is not copied", code)
        text = str(error) or type(error).__name__
        if code not in self._faults:
            log.info("the master's table of request %d is not copied, trying again: %s", code, text)
        self._faults[code] = text
        return None

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

    # ---- progress ----

    async def _copy_progress(self) -> float:
        """All that has changed, as soon as our log has what the master's had then. What waits for the log longer than
        REACHES_S is not asked for again before that, since a newer answer would have to wait again."""
        began = self._loop.time()
        codes = [code for code in self._follows if code not in self._unknown and code not in self._pending]
        found = await self._all({code: self._changed(code) for code in codes})
        bodies = {code: body for code, body in found.items() if body is not None}
        for code in found.keys() - bodies.keys():
            self._copied(code)
        if bodies:
            await self._note_pending(bodies)
        asked_s = self._loop.time() - began
        await self._log_reaches(max((each.end for each in self._pending.values()), default=0))
        ready = {code for code, each in self._pending.items() if each.end <= self._store.written}
        bodies = {code: self._pending.pop(code).body for code in self._follows if code in ready}
        for code in await self._all({code: self._follows[code](body) for code, body in bodies.items()}):
            self._copied(code)
        return asked_s

    async def _note_pending(self, bodies: Mapping[int, bytes]) -> None:
        try:
            end = (await self._master.log_range()).end
        except BaseException as error:
            for code in bodies:
                self._bodies.pop(code, None)
                if isinstance(error, OSError | MasterError):
                    self._failed(code, error)
            if not isinstance(error, OSError | MasterError):
                raise
        else:
            self._pending |= {code: PendingAnswer(body, end) for code, body in bodies.items()}

    async def _log_reaches(self, end: int) -> None:
        """Wait a moment until our log does."""
        until = self._loop.time() + REACHES_S
        while self._store.written < end and self._loop.time() < until:  # noqa: ASYNC110
            await asyncio.sleep(LOOK_S)

    async def _follow_offsets(self, body: bytes) -> None:
        self._tables.offsets.follow(await _loaded(body, lambda of: followed_offsets(_members(of))))

    async def _follow_delays(self, body: bytes) -> None:
        self._delays(body)
        self._saver.changed("delays")

    async def _follow_check_point(self, body: bytes) -> None:
        if self._timers is not None:
            self._timers.follow(body)

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


def follow_topics(
    tables: Tables, store: MessageStore, configs: Iterable[TopicConfig], version: DataVersion, log_end: int
) -> None:
    """Take a master's topics, which it had when its log ended at `log_end` or later. Queues and offsets of those that
    it has deleted are deleted as well: else their messages would come back with a topic of the same name."""
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
    return await _loaded(body, _members)


async def _loaded(body: bytes, read: Callable[[object], T]) -> T:
    """What the JSON states. ValueError."""
    if len(body) <= IN_THREAD_BYTES:
        return read(fastjson.loads(body))
    return await asyncio.to_thread(lambda: read(fastjson.loads(body)))


def _members(value: object) -> json_fields.Members:
    return json_fields.members(value, "the master's table")


def _version(body: json_fields.Members) -> DataVersion:
    return DataVersion.from_object(body.get("dataVersion", {}))
