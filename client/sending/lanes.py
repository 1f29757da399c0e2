"""Lanes: the short way of ordinary messages, one Lane for each topic of a producer. An optimisation and nothing else.

What is not ordinary, or does not succeed at once, goes the way of Submission. Loop thread.
"""

import random
from asyncio import Future
from collections.abc import Callable

from firearrow._native.wire.lane import Allowance, Lane
from firearrow._native.wire.sends import SendAnswer
from firearrow._native.wire.uniqueid import UniqueIds
from firearrow.client.errors import MessageRefused, RocketMQError
from firearrow.client.message import Message, MessageQueue, Property, SendResult, SendStatus
from firearrow.client.names import RETRY
from firearrow.client.sending.prepared import Preparer
from firearrow.client.sending.submission import Submission, Ways

SPECIAL = frozenset({Property.MULTI_DISPATCH, Property.MESSAGE_TYPE, Property.TRANSACTION_PREPARED})
"""Properties that change more than the text of properties."""


class Beyond:
    """Goes on with what a lane could not end: a Submission that begins with its second try."""

    def __init__(
        self,
        ways: Ways,
        preparer: Preparer,
        allowance: Allowance,
        mode: str,
        tries: int,
        retries: Callable[[BaseException], bool],
    ) -> None:
        self._ways = ways
        self._preparer = preparer
        self._allowance = allowance
        self._mode = mode
        self._tries = tries
        self._retries = retries

    def __call__(
        self,
        message: Message,
        queue: MessageQueue,
        future: Future[SendResult],
        size: int,
        deadline_s: float,
        outcome: SendAnswer | BaseException,
    ) -> None:
        if future.done():
            self._allowance.give_back(size)
            return
        future.add_done_callback(lambda _: self._allowance.give_back(size))
        try:
            prepared = self._preparer.prepare(message)
        except RocketMQError as error:
            future.set_exception(error)
            return
        submission = Submission(self._ways, prepared, self._mode, 0, self._tries, self._retries)
        submission.resume(future, queue, deadline_s, outcome)


class Lanes:
    """`beyond` of `submit`: a Beyond for the rules that the caller goes by."""

    def __init__(self, ways: Ways, preparer: Preparer, ids: UniqueIds, allowance: Allowance) -> None:
        self._ways = ways
        self._preparer = preparer
        self._ids = ids
        self._allowance = allowance
        self._channels = ways.instance.channels
        self._lanes: dict[str, Lane[Message, MessageQueue, SendResult]] = {}
        options = ways.options
        self._open = (
            ways.faults is None
            and not ways.forbidden
            and not ways.namespace.name
            and options.attempt_timeout_s is None
        )
        self._body_bytes_max = min(options.message_bytes_max, options.compress_over_bytes - 1)

    def submit(self, message: Message, timeout_s: float, beyond: Beyond) -> Future[SendResult] | None:
        """None: it must go the whole way. MessageRefused."""
        if not self._open or self._ways.hooks or not self._channels.plain:
            return None
        lane = self._lanes.get(message.topic)
        try:
            if lane is not None and (future := lane.submit(message, timeout_s, beyond)) is not None:
                return future
            if lane is None or not lane.laid:
                lane = self._laid(message.topic)
                return None if lane is None else lane.submit(message, timeout_s, beyond)
        except ValueError as error:
            raise MessageRefused(str(error)) from None
        return None

    def _laid(self, name: str) -> "Lane[Message, MessageQueue, SendResult] | None":
        """The topic's lane to all its queues; None while a route or a connection is missing, and for static topics."""
        topic = self._preparer.topics.get(name)
        if topic is None or topic.wrapped.startswith(RETRY):
            return None
        info = self._ways.instance.routes.known_publish_info(topic.wrapped)
        if info is None or not info.queues or info.static:
            return None
        targets = []
        for queue in info.queues:
            address = self._ways.address(queue)
            channel = None if address is None else self._channels.held(address)
            if channel is None:
                return None
            shown = MessageQueue(name, queue.broker_name, queue.queue_id)
            targets.append((queue.queue_id, queue.broker_name, shown, channel))
        lane = self._lanes.get(name)
        if lane is None:
            lane = self._lanes[name] = Lane(
                self._ways.instance.loop, topic.wrapped, topic.frames, self._ids, self._allowance,
                infos=self._ways.instance.routes.publish_infos, special=SPECIAL, body_bytes_max=self._body_bytes_max,
                result_type=SendResult, stored=SendStatus.SEND_OK, turn=random.randrange(1 << 31),
            )  # fmt: skip
        lane.lay(info, targets)
        return lane
