"""Which queues a member takes, and in which order things happen when they change: rules with fakes, splits for real."""

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest

from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.client import java_json
from firearrow.client.allocate import averagely
from firearrow.client.errors import OffsetUnknown, RequestTimeout
from firearrow.client.instance import Instance
from firearrow.client.locks import QueueLocks
from firearrow.client.message import MessageQueue
from firearrow.client.offset_store import OffsetTable
from firearrow.client.options import ClientOptions, MessageModel
from firearrow.client.process_queue import ProcessQueue
from firearrow.client.pull_request import PullRequest
from firearrow.client.rebalance import Queues, RebalanceParts, Rebalancer
from tests.client.conftest import unique
from tests.client.rounds import FakeInstance, Member, queues_of
from tests.client.services import Timeline
from tests.client.waiting import wait_until
from tests.interop.peers import Peer, address
from tests.process import Connection

MEMBERS, LOCK, UNLOCK, ASSIGN = 38, 41, 42, 400
FOUR = queues_of("T", 4)


class Offsets(OffsetTable):
    """`persisted`: in their order, each with what memory held."""

    def __init__(self, happened: list[object]) -> None:
        super().__init__()
        self._happened = happened

    async def persist(self, queue: MessageQueue) -> None:
        self._happened.append(("persist", queue.queue_id, self.remembered(queue)))


@dataclass
class Round:
    """A Rebalancer among fakes. `happened`: what it did, in order. `starts`: where each queue begins, else at 0."""

    instance: FakeInstance = field(default_factory=lambda: FakeInstance({MEMBERS: of_members("me")}))
    model: MessageModel = MessageModel.CLUSTERING
    strategy: Callable[..., Sequence[MessageQueue]] = averagely
    active: bool = False
    orderly: bool = False
    broker_assigns: bool = False
    topics: list[str] = field(default_factory=lambda: ["T"])
    starts: dict[MessageQueue, int | Exception] = field(default_factory=dict)
    listener: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        self.happened: list[object] = []
        self.time = Timeline()
        self.offsets = Offsets(self.happened)
        self.instance.routes.queues.setdefault("T", FOUR)
        table: dict[MessageQueue, ProcessQueue] = {}
        locks = QueueLocks(self.instance, "group", table, self.time) if self.orderly else None
        self.rebalancer = Rebalancer(
            RebalanceParts(
                instance=self.instance, group="group", model=self.model, strategy=self.strategy, offsets=self.offsets,
                topics=lambda: self.topics, start_offset=self._start, begin=self._begin, changed=self._changed,
                locks=locks, active=self.active, broker_assigns=self.broker_assigns, begin_pop=self._begin_pop,
                pop_retry=lambda topic, wanted: self.happened.append(("retry", topic, wanted)),
                new_process_queue=lambda: ProcessQueue(self.time), clock=self.time, later=self.time.later,
            ),
            table,
        )  # fmt: skip
        self.table = table

    async def _start(self, queue: MessageQueue) -> int:
        start = self.starts.get(queue, 0)
        if isinstance(start, Exception):
            raise start
        return start

    def _begin(self, request: PullRequest) -> None:
        self.happened.append(("begin", request.queue.queue_id, request.next_offset))

    def _begin_pop(self, queue: MessageQueue, process_queue: ProcessQueue) -> None:
        self.happened.append(("pop", queue.queue_id))

    async def _changed(self, topic: str, everything: Queues, mine: Queues) -> None:
        self.happened.append(("changed", topic, len(everything), sorted(queue.queue_id for queue in mine)))
        self.listener()

    def of(self, kind: str) -> list[object]:
        return [what for what in self.happened if isinstance(what, tuple) and what[0] == kind]

    @property
    def mine(self) -> list[int]:
        return sorted(queue.queue_id for queue, held in self.table.items() if not held.dropped)


def of_members(*ids: str) -> Callable[[RemotingCommand], RemotingCommand]:
    return lambda request: request.answer(body=json.dumps({"consumerIdList": ids}).encode())


def locking(*refused: MessageQueue) -> Callable[[RemotingCommand], RemotingCommand]:
    """A broker that locks all but these."""

    def answer(request: RemotingCommand) -> RemotingCommand:
        wanted = [java_json.message_queue(one) for one in java_json.loads(request.body)["mqSet"]]
        return request.answer(
            body=java_json.dumps({"lockOKMQSet": [one for one in wanted if one not in refused]})
        )

    return answer


def assigning(**modes: str) -> Callable[[RemotingCommand], RemotingCommand]:
    """`q0="PULL"`: queue 0 is to be pulled."""
    items = [
        {"messageQueue": MessageQueue("T", "broker-a", int(name[1:])), "mode": mode}
        for name, mode in modes.items()
    ]
    return lambda request: request.answer(body=java_json.dumps({"messageQueueAssignments": items}))


# ---- taking ----


async def test_the_change_is_told_before_the_pulls_begin_half_a_second_later() -> None:
    one = Round(FakeInstance({MEMBERS: of_members("you", "me")}), starts={FOUR[0]: 7})
    assert await one.rebalancer.run()
    assert one.mine == [0, 1], "sorted, me before you"
    assert one.happened == [("changed", "T", 4, [0, 1])]
    await one.time.pass_by(0.49)
    assert not one.of("begin")
    await one.time.pass_by(0.02)
    assert one.of("begin") == [("begin", 0, 7), ("begin", 1, 0)]
    assert one.instance.asked[0].ext == {"consumerGroup": "group"}


async def test_nothing_happens_while_nothing_changes() -> None:
    one = Round()
    await one.rebalancer.run()
    one.happened.clear()
    assert await one.rebalancer.run()
    assert one.happened == []


async def test_what_leaves_is_persisted_and_forgotten() -> None:
    one = Round()
    await one.rebalancer.run()
    one.offsets.update(FOUR[3], 30)
    leaving = one.table[FOUR[3]]
    one.instance.says[MEMBERS] = of_members("me", "you")
    assert await one.rebalancer.run()
    assert one.mine == [0, 1]
    assert leaving.dropped
    assert ("persist", 3, 30) in one.happened
    assert one.offsets.remembered(FOUR[3]) == -1
    assert one.happened[-1] == ("changed", "T", 4, [0, 1])


async def test_a_queue_that_left_at_once_is_never_begun() -> None:
    one = Round()
    await one.rebalancer.run()
    one.instance.says[MEMBERS] = of_members("me", "you")
    await one.rebalancer.run()
    await one.time.pass_by(1)
    assert one.of("begin") == [("begin", 0, 0), ("begin", 1, 0)]


@pytest.mark.parametrize(
    "says",
    [
        RequestTimeout("no answer"),
        of_members(),
        lambda request: request.answer(ResponseCode.SYSTEM_ERROR, "no consumer for this group"),
        lambda request: request.answer(body=b"{"),
        lambda request: request.answer(body=b"[]"),
        lambda request: request.answer(body=b'{"consumerIdList":[1]}'),
    ],
)
async def test_without_the_members_everything_stays(says: Callable[..., RemotingCommand] | Exception) -> None:
    one = Round()
    await one.rebalancer.run()
    one.happened.clear()
    one.instance.says[MEMBERS] = says
    assert not await one.rebalancer.run()
    assert one.mine == [0, 1, 2, 3]
    assert one.happened == []


async def test_who_is_not_listed_owns_nothing() -> None:
    one = Round(FakeInstance({MEMBERS: of_members("you")}))
    assert await one.rebalancer.run()
    assert one.mine == []


async def test_a_strategy_that_fails_changes_nothing() -> None:
    one = Round()
    await one.rebalancer.run()

    def broken(*_: object) -> Sequence[MessageQueue]:
        raise ZeroDivisionError

    one.rebalancer._parts.strategy = broken
    assert not await one.rebalancer.run()
    assert one.mine == [0, 1, 2, 3]


async def test_a_queue_is_not_begun_while_nobody_knows_where() -> None:
    one = Round(starts={FOUR[1]: OffsetUnknown("no broker")})
    assert not await one.rebalancer.run(), "it is tried again after a second"
    assert one.mine == [0, 2, 3]
    one.starts[FOUR[1]] = 5
    assert await one.rebalancer.run()
    await one.time.pass_by(1)
    assert ("begin", 1, 5) in one.happened


async def test_a_stale_offset_is_gone_before_a_queue_is_begun() -> None:
    one = Round()
    one.offsets.update_and_freeze(FOUR[0], 99)
    await one.rebalancer.run()
    assert one.offsets.remembered(FOUR[0]) == -1


async def test_a_queue_that_nobody_pulls_is_begun_anew() -> None:
    one = Round()
    await one.rebalancer.run()
    still = dict(one.table)
    one.time.now += 121
    for queue in FOUR[1:]:
        one.table[queue].last_pull_s = one.time.now
    assert await one.rebalancer.run()
    assert one.table[FOUR[0]] is not still[FOUR[0]]
    assert still[FOUR[0]].dropped
    assert [one.table[queue] for queue in FOUR[1:]] == [still[queue] for queue in FOUR[1:]]


async def test_a_user_who_pulls_may_take_his_time() -> None:
    one = Round(active=True)
    await one.rebalancer.run()
    still = dict(one.table)
    one.time.now += 1000
    assert await one.rebalancer.run()
    assert one.table == still


async def test_a_queue_that_was_dropped_elsewhere_is_begun_anew() -> None:
    one = Round()
    await one.rebalancer.run()
    one.table[FOUR[2]].dropped = True
    assert await one.rebalancer.run()
    assert one.mine == [0, 1, 2, 3]


# ---- topics ----


async def test_who_broadcasts_takes_everything_and_asks_nobody() -> None:
    one = Round(FakeInstance({}), model=MessageModel.BROADCASTING)
    assert await one.rebalancer.run()
    assert one.mine == [0, 1, 2, 3]
    assert one.instance.asked == []


@pytest.mark.parametrize("model", list(MessageModel))
async def test_a_topic_without_queues_is_told_and_not_waited_for(model: MessageModel) -> None:
    one = Round(model=model, topics=["missing"])
    assert await one.rebalancer.run()
    assert one.happened == [("changed", "missing", 0, [])]


async def test_a_retry_topic_may_not_exist_yet() -> None:
    one = Round(topics=["%RETRY%group"])
    assert await one.rebalancer.run()
    assert one.happened == []


async def test_a_topic_that_fails_does_not_stop_the_others() -> None:
    class Routes(type(FakeInstance({}).routes)):  # type: ignore[misc]
        async def subscribe_queues(self, topic: str) -> list[MessageQueue]:
            if topic == "%RETRY%bad":
                raise RequestTimeout("no name server")
            if topic == "bad":
                raise KeyError(topic)
            return await super().subscribe_queues(topic)

    one = Round(topics=["%RETRY%bad", "bad", "T"])
    routes = Routes()
    routes.queues["T"] = FOUR
    one.instance.routes = routes
    assert not await one.rebalancer.run()
    assert one.mine == [0, 1, 2, 3]
    one.topics = ["%RETRY%bad", "T"]
    assert await one.rebalancer.run(), "retry topics may fail"


async def test_queues_of_a_topic_that_was_unsubscribed_are_persisted_and_go() -> None:
    one = Round()
    await one.rebalancer.run()
    one.offsets.update(FOUR[0], 12)
    one.topics = []
    assert await one.rebalancer.run()
    assert one.table == {}
    assert ("persist", 0, 12) in one.happened


async def test_a_listener_that_fails_stops_nothing() -> None:
    def fail() -> None:
        raise RuntimeError("a user's")

    one = Round(listener=fail)
    assert await one.rebalancer.run()
    await one.time.pass_by(1)
    assert len(one.of("begin")) == 4


async def test_rounds_do_not_overlap() -> None:
    one = Round()
    assert await asyncio.gather(*(one.rebalancer.run() for _ in range(3))) == [True] * 3
    assert one.of("changed") == [("changed", "T", 4, [0, 1, 2, 3])]


async def test_a_removed_queue_comes_back_in_a_later_round() -> None:
    one = Round()
    await one.rebalancer.run()
    held = one.table[FOUR[1]]
    await one.rebalancer.remove(FOUR[1])
    await one.rebalancer.remove(FOUR[1])
    assert held.dropped
    assert one.mine == [0, 2, 3]
    assert await one.rebalancer.run()
    assert one.mine == [0, 1, 2, 3]


async def test_after_closing_nothing_is_begun() -> None:
    one = Round()
    await one.rebalancer.run()
    one.rebalancer.close()
    await one.time.pass_by(1)
    assert one.of("begin") == []
    assert one.table == {}


# ---- in order ----


def in_order(*refused: MessageQueue, **more: object) -> Round:
    says = {MEMBERS: of_members("me"), LOCK: locking(*refused)}
    return Round(FakeInstance(says), orderly=True, **more)  # type: ignore[arg-type]


async def test_in_order_only_locked_queues_are_begun() -> None:
    one = in_order(FOUR[1], FOUR[2])
    assert not await one.rebalancer.run()
    assert one.mine == [0, 3]
    assert all(held.locked for held in one.table.values())
    assert one.instance.rebalances_soon == [0.5]
    assert java_json.loads(one.instance.asked_for(LOCK)[0].body) == {
        "clientId": "me", "consumerGroup": "group", "onlyThisBroker": False,
        "mqSet": [{"brokerName": "broker-a", "queueId": number, "topic": "T"} for number in range(4)],
    }  # fmt: skip
    one.instance.says[LOCK] = locking()
    assert await one.rebalancer.run()
    assert one.mine == [0, 1, 2, 3]


async def test_in_order_a_queue_is_unlocked_after_its_offset_was_persisted() -> None:
    one = in_order()
    await one.rebalancer.run()
    one.offsets.update(FOUR[3], 30)
    held = one.table[FOUR[3]]
    one.instance.says[MEMBERS] = of_members("me", "you")
    one.instance.asked.clear()
    assert await one.rebalancer.run()
    assert one.mine == [0, 1]
    assert not held.locked
    unlocks = one.instance.asked_for(UNLOCK)
    assert [java_json.loads(request.body)["mqSet"][0]["queueId"] for request in unlocks] == [2, 3]
    assert all(request.is_oneway for request in unlocks)
    assert one.of("persist").count(("persist", 3, 30)) == 2
    assert not held.consume_lock.locked()


async def test_in_order_a_busy_queue_waits_for_a_later_round_but_not_forever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("firearrow.client.rebalance.BUSY_S", 0.01)
    one = in_order()
    await one.rebalancer.run()
    held = one.table[FOUR[3]]
    held.last_lock_s = one.time.now
    one.instance.says[MEMBERS] = of_members("me", "you")
    async with held.consume_lock:
        for times in (1, 2):
            assert not await one.rebalancer.run()
            assert held.try_unlock_times == times
        assert one.table[FOUR[3]] is held
        assert held.dropped
        assert not any(b'"queueId":3' in request.body for request in one.instance.asked_for(UNLOCK))
        one.time.now += 21
        assert await one.rebalancer.run()
    assert FOUR[3] not in one.table
    assert b'"queueId":3' in one.instance.asked_for(UNLOCK)[-1].body


async def test_a_renewal_tells_what_is_still_ours() -> None:
    one = in_order()
    await one.rebalancer.run()
    locks = one.rebalancer._parts.locks
    assert locks is not None
    one.time.now += 20
    one.table[FOUR[3]].dropped = True
    one.instance.says[LOCK] = locking(FOUR[1])
    await locks.lock_all()
    assert [one.table[queue].locked for queue in FOUR] == [True, False, True, True]
    assert [one.table[queue].last_lock_s == one.time.now for queue in FOUR] == [True, False, True, False]
    assert not await locks.lock(FOUR[1])
    one.instance.says[LOCK] = locking()
    assert await locks.lock(FOUR[1])
    assert one.table[FOUR[1]].locked


@pytest.mark.parametrize(
    "says",
    [
        RequestTimeout("no answer"),
        lambda request: request.answer(body=b"{}"),
        lambda request: request.answer(1),
    ],
)
async def test_a_renewal_that_fails_leaves_the_locks_to_expire(
    says: Callable[..., RemotingCommand] | Exception,
) -> None:
    one = in_order()
    await one.rebalancer.run()
    locks, before = one.rebalancer._parts.locks, one.time.now
    assert locks is not None
    one.instance.says[LOCK] = says
    one.time.now += 20
    await locks.lock_all()
    assert all(held.locked for held in one.table.values())
    assert not any(held.lock_expired(before + 30) for held in one.table.values())
    assert all(held.lock_expired(before + 30.1) for held in one.table.values())
    assert not await locks.lock(FOUR[0])


async def test_what_a_broker_locks_beyond_the_question_is_not_ours() -> None:
    one = in_order()
    locks = one.rebalancer._parts.locks
    assert locks is not None
    one.instance.says[LOCK] = lambda request: request.answer(body=java_json.dumps({"lockOKMQSet": FOUR}))
    assert await locks.take(FOUR[:1]) == {FOUR[0]}


async def test_giving_all_back_asks_each_broker_once() -> None:
    one = in_order()
    await one.rebalancer.run()
    locks = one.rebalancer._parts.locks
    assert locks is not None
    await locks.unlock_all()
    assert len(one.instance.asked_for(UNLOCK)) == 1
    assert not any(held.locked for held in one.table.values())


# ---- assigned by the broker ----


async def test_a_broker_assigns_queues_to_pull_and_to_pop() -> None:
    one = Round(FakeInstance({ASSIGN: assigning(q0="PULL", q1="POP")}), broker_assigns=True)
    assert await one.rebalancer.run()
    assert (list(one.rebalancer.table), list(one.rebalancer.pop_table)) == ([FOUR[0]], [FOUR[1]])
    await one.time.pass_by(0.6)
    assert one.happened == [("changed", "T", 4, [0, 1]), ("begin", 0, 0), ("pop", 1)]
    assert java_json.loads(one.instance.asked[0].body) == {
        "clientId": "me", "consumerGroup": "group", "messageModel": "CLUSTERING", "strategyName": "AVG", "topic": "T",
    }  # fmt: skip


async def test_a_change_of_mode_moves_the_queue_and_the_retry_topic() -> None:
    one = Round(FakeInstance({ASSIGN: assigning(q0="POP")}), broker_assigns=True)
    assert await one.rebalancer.run()
    popped = one.rebalancer.pop_table[FOUR[0]]
    one.instance.says[ASSIGN] = assigning(q0="PULL")
    assert await one.rebalancer.run()
    assert popped.dropped
    assert (list(one.rebalancer.table), list(one.rebalancer.pop_table)) == ([FOUR[0]], [])
    assert one.of("retry") == [("retry", "%RETRY%group_T", False), ("retry", "%RETRY%group_T", True)]


async def test_a_queue_that_nobody_pops_is_begun_anew() -> None:
    one = Round(FakeInstance({ASSIGN: assigning(q0="POP")}), broker_assigns=True)
    await one.rebalancer.run()
    popped = one.rebalancer.pop_table[FOUR[0]]
    one.time.now += 121
    assert await one.rebalancer.run()
    assert popped.dropped
    assert one.rebalancer.pop_table[FOUR[0]] is not popped
    one.topics = []
    await one.rebalancer.run()
    assert one.rebalancer.pop_table == {}


@pytest.mark.parametrize(
    "body",
    [b"{}", b'{"messageQueueAssignments":5}', b'{"messageQueueAssignments":[5]}', b"5", b"{",
     b'{"messageQueueAssignments":[{"messageQueue":{"topic":"T"},"mode":"PULL"}]}'],
)  # fmt: skip
async def test_no_valid_assignment_means_keep_what_there_is(body: bytes) -> None:
    one = Round(FakeInstance({ASSIGN: assigning(q0="PULL", q1="PULL")}), broker_assigns=True)
    await one.rebalancer.run()
    one.instance.says[ASSIGN] = lambda request: request.answer(body=body)
    assert not await one.rebalancer.run()
    assert one.mine == [0, 1]


async def test_an_empty_assignment_means_drop_everything() -> None:
    one = Round(FakeInstance({ASSIGN: assigning(q0="PULL", q1="POP")}), broker_assigns=True)
    await one.rebalancer.run()
    one.instance.says[ASSIGN] = assigning()
    assert await one.rebalancer.run()
    assert one.rebalancer.table == one.rebalancer.pop_table == {}


# ---- real brokers ----


async def member(name_server: str, group: str, topics: Sequence[str], **more: object) -> Member:
    made = Member(await Instance.of(ClientOptions(name_server=name_server)), group, topics, **more)  # type: ignore[arg-type]
    await made.join()
    return made


async def test_members_share_queues_and_inherit_them(name_server: str, topics: Callable[..., str]) -> None:
    topic, group = topics(queues=5), unique("group")
    one = await member(name_server, group, [topic])
    await wait_until(lambda: one.mine == [0, 1, 2, 3, 4])
    two = await member(name_server, group, [topic])
    await wait_until(lambda: len(one.mine) + len(two.mine) == 5 and two.mine)
    first, second = sorted((one, two), key=lambda each: each.instance.client_id)
    assert (first.mine, second.mine) == ([0, 1, 2], [3, 4])
    await one.leave()
    await wait_until(lambda: two.mine == [0, 1, 2, 3, 4])
    await two.leave()


async def test_in_order_a_queue_comes_with_its_offset(name_server: str, topics: Callable[..., str]) -> None:
    topic, group = topics(queues=2), unique("group")
    one = await member(name_server, group, [topic], orderly=True)
    await wait_until(lambda: one.mine == [0, 1])
    for queue in list(one.rebalancer.table):
        one.offsets.update(queue, 10 + queue.queue_id)
    two = await member(name_server, group, [topic], orderly=True)
    await wait_until(lambda: two.begun)
    await one.leave()
    await wait_until(lambda: len(two.begun) == 2)
    assert all(request.next_offset == 10 + request.queue.queue_id for request in two.begun)
    await two.leave()


async def test_in_order_a_queue_has_one_owner_at_any_time(
    name_server: str, topics: Callable[..., str]
) -> None:
    topic, group = topics(queues=2), unique("group")
    one = await member(name_server, group, [topic], orderly=True)
    await wait_until(lambda: one.mine == [0, 1])
    queues = sorted(one.rebalancer.table)
    stranger = QueueLocks(await Instance.of(ClientOptions(name_server=name_server)), group, {})
    await stranger._instance.routes.subscribe_queues(topic)
    assert await stranger.take(queues) == set()
    two = await member(name_server, group, [topic], orderly=True)
    await wait_until(lambda: len(one.mine) == len(two.mine) == 1)
    await one.leave()
    await wait_until(lambda: two.mine == [0, 1])
    assert await stranger.take(queues) == set()
    await two.leave()
    assert await stranger.take(queues) == set(queues)
    await stranger.give(queues)
    await stranger._instance.leave()


async def test_a_broker_assigns_queues_as_members_would(name_server: str, topics: Callable[..., str]) -> None:
    topic, group = topics(queues=4), unique("group")
    one = await member(name_server, group, [topic], broker_assigns=True)
    await wait_until(lambda: one.mine == [0, 1, 2, 3])
    two = await member(name_server, group, [topic], broker_assigns=True)
    await wait_until(lambda: len(one.mine) == len(two.mine) == 2)
    first, second = sorted((one, two), key=lambda each: each.instance.client_id)
    assert (first.mine, second.mine) == ([0, 1], [2, 3])
    await one.leave()
    await two.leave()


async def test_a_broker_may_have_queues_popped(
    name_server: str, peer: Peer, topics: Callable[..., str]
) -> None:
    topic, group = topics(queues=2), unique("group")
    mode = {"consumerGroup": group, "mode": "POP", "popShareQueueNum": 0, "topic": topic}
    with Connection(address(peer.address)) as connection:
        answer = connection.ask(RequestCode.SET_MESSAGE_REQUEST_MODE, {}, java_json.dumps(mode))
    assert answer.code == 0, answer.remark
    one = await member(name_server, group, [topic], broker_assigns=True)
    await wait_until(lambda: one.popped)
    assert [(queue.topic, queue.queue_id) for queue in one.popped] == [(topic, -1)], (
        "any queue of that broker"
    )
    assert one.begun == []
    await one.leave()
