"""PullPipeline: pulls one queue's records, several requests at a time.

A broker limits each pull (by default to 32 records or 256 KiB). While each response advances by the same
number of offsets, the offsets of the next pulls are predicted and requested ahead. Commits nothing, joins no
group. One thread; routes are resolved in the client's loop.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

from firearrow._native.wire.codes import PullFlag, RequestCode, ResponseCode
from firearrow._native.wire.command import FieldError, RemotingCommand
from firearrow.client.base.errors import ClientError, ConfigError
from firearrow.client.base.message import MessageQueue
from firearrow.spark_tools.base.errors import InvalidOption, RequestRefused, TopicNotFound, Unreachable
from firearrow.spark_tools.live.client_link import BUSY, RetryDeadline, SharedAdmin
from firearrow.spark_tools.live.connection import BrokerSocket, connect

BATCH_MAX = 1024
"""Records requested per pull; brokers return fewer unless configured otherwise."""
PIPELINE_MAX = 16
STEADY = 3
"""Equal advances required before offsets are predicted."""
SILENT_S = 15.0
MASTER = 0
STATES = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
    }
)


@dataclass(frozen=True, slots=True)
class BrokerFilter:
    """The filter that the broker applies; `*` matches everything."""

    kind: str = "TAG"
    expression: str = "*"

    @property
    def everything(self) -> bool:
        return self.expression == "*"


class PullAnswer(NamedTuple):
    """`code` is one of STATES; `body`: whole records, back to back; `next`: the offset after all that was
    scanned."""

    code: int
    next: int
    first: int
    end: int
    body: bytes


class FilterUnsupported(Exception):
    """The broker does not evaluate SQL92 expressions."""


class PullPipeline:
    """Reads one queue up to `end`. `suspend_ms`: how long the broker may hold a pull that finds nothing."""

    def __init__(
        self,
        admin: SharedAdmin,
        queue: MessageQueue,
        end: int,
        group: str,
        broker_filter: BrokerFilter,
        timeout_s: float,
    ) -> None:
        self.suspend_ms = 0
        self._admin = admin
        self._queue = replace(queue, topic=admin.admin.namespace.wrap(queue.topic))
        self._end = end
        self._filter = broker_filter
        self._timeout_s = timeout_s
        self._deadline = RetryDeadline(timeout_s)
        self._silent_s = min(SILENT_S, timeout_s)
        self._socket: BrokerSocket | None = None
        self._address = ""
        self._broker_id = MASTER
        self._opaque = 0
        self._asked: dict[int, int] = {}
        self._last = 0
        self._answers: dict[int, RemotingCommand] = {}
        self._stride = 0
        self._steady = 0
        self._fields = {
            "consumerGroup": group,
            "topic": self._queue.topic,
            "queueId": str(queue.queue_id),
            "maxMsgBytes": "4194304",
            "commitOffset": "0",
            "subVersion": "0",
            "subscription": broker_filter.expression,
            "expressionType": broker_filter.kind,
            "bname": queue.broker_name,
        }

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket = None
        self._asked.clear()
        self._answers.clear()

    def ask(self, queue_offset: int) -> None:
        """Send the pull at this offset and the predicted ones after it. Errors appear in `answer`."""
        try:
            self._ask(queue_offset)
        except (OSError, ClientError, ConfigError):
            self.close()

    def answer(self, queue_offset: int) -> PullAnswer:
        """The response to the pull at this offset. Unreachable, RequestRefused, TopicNotFound, InvalidOption;
        FilterUnsupported."""
        while True:
            try:
                self._ask(queue_offset)
                command = self._take(self._asked[queue_offset])
            except (OSError, ClientError, ConfigError) as error:
                self._pause(error)
                continue
            del self._asked[queue_offset]
            if command.code in BUSY or command.code == ResponseCode.GO_AWAY:
                self._pause(
                    RequestRefused(f"{self._queue.broker_name}: {command.code} {command.remark or ''}")
                )
                continue
            self._deadline.renew()
            return self._understood(queue_offset, command)

    # ---- requests ----

    def _ask(self, queue_offset: int) -> None:
        if self._socket is None:
            self._socket = self._connect()
        following = queue_offset
        if queue_offset not in self._asked:
            self._asked.clear()
            self._answers.clear()
        elif len(self._asked) > self._pipeline_depth // 2:
            return  # refill only when half empty, so that several pulls leave in one write
        else:
            following = self._last + self._stride
        frames = []
        while len(self._asked) < self._pipeline_depth and following < self._end:
            frames.append(self._frame(following))
            following += self._stride
        if frames:
            self._socket.write((b"".join(frames),), self._silent_s)

    @property
    def _pipeline_depth(self) -> int:
        """Maximum number of pulls in flight."""
        return 1 if self._steady < STEADY else min(PIPELINE_MAX, 2 << (self._steady - STEADY))

    def _frame(self, queue_offset: int) -> bytes:
        flags = PullFlag.PULL_SUBSCRIPTION | (PullFlag.PULL_SUSPEND if self.suspend_ms else 0)
        left = self._end - queue_offset
        ext = self._fields | {
            "queueOffset": str(queue_offset),
            "sysFlag": str(int(flags)),
            "suspendTimeoutMillis": str(self.suspend_ms),
            "maxMsgNums": str(min(BATCH_MAX, left) if self._filter.everything else BATCH_MAX),
        }
        self._opaque = self._opaque % 0x7FFFFFFF + 1
        command = RemotingCommand.request(RequestCode.PULL_MESSAGE, ext)
        command.opaque = self._opaque
        self._admin.instance.channels.prepare(command, self._address)
        self._asked[queue_offset] = self._opaque
        self._last = queue_offset
        return command.encode()

    def _connect(self) -> BrokerSocket:
        admin, queue, broker_id = self._admin, self._queue, self._broker_id

        async def asking() -> str:
            routes = admin.instance.routes
            await routes.refresh(queue.topic)
            name = routes.broker_name_of(queue)
            found = routes.address(name, broker_id) or routes.address(name, MASTER)
            return found.address if found is not None else await admin.instance.master(name)

        self._address = admin.run(asking)
        return connect(admin, self._address)

    def _pause(self, error: Exception) -> None:
        """Close the connection and wait before the next try. Unreachable: the time is up."""
        self.close()
        self._broker_id = MASTER
        text = f"{self._queue.topic}@{self._queue.broker_name}:{self._queue.queue_id}: {error}"
        if isinstance(error, ConfigError):
            raise Unreachable(text) from error
        if not self._deadline.wait():
            raise Unreachable(f"{text}; given up after {self._timeout_s:g} s") from error

    # ---- answers ----

    def _take(self, opaque: int) -> RemotingCommand:
        assert self._socket is not None
        silent_s = self._silent_s + self.suspend_ms / 1000
        while opaque not in self._answers:
            for command in self._socket.answers(silent_s):
                self._answers[command.opaque] = command
            if len(self._answers) > 2 * PIPELINE_MAX:
                known = set(self._asked.values())
                self._answers = {n: command for n, command in self._answers.items() if n in known}
        return self._answers.pop(opaque)

    def _understood(self, queue_offset: int, command: RemotingCommand) -> PullAnswer:
        if command.code not in STATES:
            raise self._refusal(command)
        try:
            found = PullAnswer(
                command.code,
                command.integer("nextBeginOffset"),
                command.integer("minOffset"),
                command.integer("maxOffset"),
                command.body,
            )
            if command.integer_or("offsetDelta", 0):
                raise RequestRefused(
                    f"topic {self._queue.topic} is static and its queue {self._queue.queue_id} was moved; "
                    "read the brokers' stores instead"
                )
            self._suggested(command.integer_or("suggestWhichBrokerId", MASTER))
        except FieldError as error:
            raise RequestRefused(f"{self._queue.broker_name}: cannot decode a response: {error}") from error
        self._learn(found.next - queue_offset if found.code == ResponseCode.SUCCESS else 0)
        return found

    def _learn(self, advance: int) -> None:
        if advance <= 0 or not self._filter.everything:
            self._stride = self._steady = 0
        elif advance == self._stride:
            self._steady = min(self._steady + 1, 32)
        else:
            self._stride, self._steady = advance, 0

    def _suggested(self, broker_id: int) -> None:
        """Reconnect for the next pull if the broker suggests another replica."""
        if broker_id == self._broker_id:
            return
        self._broker_id = broker_id
        routes = self._admin.instance.routes
        found = routes.address(routes.broker_name_of(self._queue), broker_id)
        if found is not None and found.address != self._address:
            self.close()

    def _refusal(self, command: RemotingCommand) -> Exception:
        queue, remark = self._queue, command.remark or ""
        text = f"{queue.topic}@{queue.broker_name}:{queue.queue_id}: {command.code} {remark}"
        if command.code == ResponseCode.TOPIC_NOT_EXIST:
            return TopicNotFound(text)
        if command.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED:
            return InvalidOption(f"sql: the broker cannot parse {self._filter.expression!r}: {text}")
        if self._filter.kind == "SQL92" and "does not support" in remark:
            return FilterUnsupported(text)
        return RequestRefused(text)
