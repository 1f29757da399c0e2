"""A PULL request and its answer, and PullClient, which sends it for one group. Event loop only.

Its only state is the broker id (master or slave) that the last answer recommended for each queue.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import Enum

from firearrow._native.store.log.received_message import ReceivedMessage, decode_messages
from firearrow._native.wire.codes import PullFlag, RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.client.base.compression import open_body
from firearrow.client.base.errors import BrokerError, ClientError
from firearrow.client.base.hooks import FilterHook
from firearrow.client.base.message import MessageQueue
from firearrow.client.base.state_log import QUIET_S
from firearrow.client.rebalance.subscription import Subscription
from firearrow.client.remoting.client_instance import ClientInstance
from firearrow.client.remoting.routes import MASTER, BrokerAddress

log = logging.getLogger("firearrow.client")

NOT_LOGGED_AGAIN = f"further pauses are not logged until there were none for {QUIET_S:.0f} s"
CAUGHT_UP = "topic %s is consumed as fast as it is pulled again: pulling paused %d times"
WORKS_AGAIN = "broker %s answers pulls again, after %d failures"

SQL_VERSION = 232
"""V4_1_0_SNAPSHOT: older brokers do not know SQL."""


class PullStatus(Enum):
    """The result of a pull; the value is the response code."""

    FOUND = 0
    NO_NEW_MSG = 19
    NO_MATCHED_MSG = 20
    OFFSET_ILLEGAL = 21


@dataclass(frozen=True, slots=True, kw_only=True)
class PullQuery:
    """One pull, with names as brokers know them. `subscription` is the one that heartbeats report."""

    queue: MessageQueue
    subscription: Subscription
    offset: int
    batch: int
    batch_bytes: int
    timeout_s: float
    suspend_s: float | None = None
    """How long the broker may hold the request until messages arrive; None: not at all."""
    commit: int | None = None
    """The group's offset, which the broker stores with the pull."""
    post_expression: bool = False
    """The request contains the filter, so that the one of the last heartbeat does not matter."""
    lite: bool = False


@dataclass(frozen=True, slots=True)
class PullResult:
    """`messages`: those that match; `next_offset`: the offset after all messages that were examined."""

    status: PullStatus
    next_offset: int
    min_offset: int
    max_offset: int
    messages: list[ReceivedMessage]


class PullClient:
    """`broker_id`: the target of all pulls of this group; None: the one that brokers recommend, at first the
    master.
    """

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        filters: Iterable[FilterHook] = (),
        *,
        broker_id: int | None = None,
        opener: Callable[[int, bytes], bytes] = open_body,
    ) -> None:
        self._instance = instance
        self._group = group
        self._filters = tuple(filters)
        self._broker_id = broker_id
        self._opener = opener
        self._suggested: dict[MessageQueue, int] = {}
        self._without_lite_pulls: set[str] = set()
        """Addresses of brokers before 5.0, which know plain pulls only."""

    async def pull(self, pull: PullQuery) -> PullResult:
        """BrokerError: a code other than the four of PullStatus. TransportError, FieldError, RecordError."""
        target = await self._target(pull.queue)
        version = self._instance.broker_version(target.address)
        if pull.subscription.kind != "TAG" and 0 < version < SQL_VERSION:
            raise ClientError(
                f"broker {pull.queue.broker_name} is too old to filter by {pull.subscription.kind}"
            )
        if target.address in self._without_lite_pulls:
            pull = replace(pull, lite=False)
        answer = await self._call(target, pull)
        if pull.lite and answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            self._without_lite_pulls.add(target.address)
            answer = await self._call(target, replace(pull, lite=False))
        return self._result(pull, answer)

    async def _call(self, target: BrokerAddress, pull: PullQuery) -> RemotingCommand:
        request = pull_command(pull, self._group, to_master=target.broker_id == MASTER)
        return await self._instance.call(target.address, request, pull.timeout_s)

    async def _target(self, queue: MessageQueue) -> BrokerAddress:
        routes = self._instance.routes
        broker_id = self._suggested.get(queue, MASTER) if self._broker_id is None else self._broker_id
        target = routes.address(routes.broker_name_of(queue), broker_id)
        if target is None:
            await routes.refresh(queue.topic)
            target = routes.address(routes.broker_name_of(queue), broker_id)
        if target is None:
            raise ClientError(f"broker {routes.broker_name_of(queue)} is not known")
        return target

    def _result(self, pull: PullQuery, answer: RemotingCommand) -> PullResult:
        if answer.code not in PullStatus._value2member_map_:
            raise BrokerError(answer.code, answer.remark or "", pull.queue.broker_name)
        status = PullStatus(answer.code)
        self._suggested[pull.queue] = answer.integer("suggestWhichBrokerId")
        next_offset = _offset(answer, "nextBeginOffset")
        min_offset, max_offset = answer.integer("minOffset"), answer.integer("maxOffset")
        messages: list[ReceivedMessage] = []
        if status is PullStatus.FOUND:
            messages = decode_messages(
                answer.body,
                pull.queue.broker_name,
                self._opener,
                queue=pull.queue,
                min_offset=min_offset,
                max_offset=max_offset,
                offset_delta=answer.integer_or("offsetDelta", 0),
                tags=pull.subscription.tags,
            )
            for hook in self._filters:
                messages = self._filtered(hook, pull.queue, messages)
        return PullResult(status, next_offset, min_offset, max_offset, messages)

    def _filtered(
        self, hook: FilterHook, queue: MessageQueue, messages: list[ReceivedMessage]
    ) -> list[ReceivedMessage]:
        try:
            return hook.filter(self._group, queue, messages)
        except Exception:
            log.exception("a filter hook failed: %r", hook)
            return messages


def pull_command(pull: PullQuery, group: str, *, to_master: bool) -> RemotingCommand:
    """The request. It commits no offset at a slave."""
    flags = 0
    commit = pull.commit if to_master else None
    if commit is not None:
        flags |= PullFlag.PULL_COMMIT_OFFSET
    if pull.suspend_s is not None:
        flags |= PullFlag.PULL_SUSPEND
    if pull.lite:
        flags |= PullFlag.PULL_LITE
    ext = {
        "consumerGroup": group,
        "topic": pull.queue.topic,
        "queueId": str(pull.queue.queue_id),
        "queueOffset": str(pull.offset),
        "maxMsgNums": str(pull.batch),
        "maxMsgBytes": str(pull.batch_bytes),
        "commitOffset": str(commit or 0),
        "suspendTimeoutMillis": str(round((pull.suspend_s or 0) * 1000)),
        "subVersion": str(pull.subscription.version),
        "expressionType": pull.subscription.kind,
        "bname": pull.queue.broker_name,
    }
    if pull.post_expression:
        flags |= PullFlag.PULL_SUBSCRIPTION
        ext["subscription"] = pull.subscription.expression
    ext["sysFlag"] = str(flags)
    code = RequestCode.LITE_PULL_MESSAGE if pull.lite else RequestCode.PULL_MESSAGE
    return RemotingCommand.request(code, ext)


def _offset(answer: RemotingCommand, name: str) -> int:
    value = answer.integer(name)
    if value < 0:
        raise ClientError(f"{name}: {value} is not an offset")
    return value
