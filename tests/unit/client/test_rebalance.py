"""Which queues a member takes, and in which order things happen when they change. Rules, with fakes."""

import asyncio
from collections.abc import Callable, Sequence

import pytest

from firearrow._native.protocol import fastjson
from firearrow._native.wire.codes import ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.client.base.errors import OffsetUnknown, RequestTimeout
from firearrow.client.base.message import MessageQueue
from firearrow.client.base.options import MessageModel
from tests.client.rebalancing import (
    ASSIGN,
    FOUR,
    MEMBERS,
    Round,
    assigning,
    of_members,
)
from tests.client.rounds import FakeInstance


@pytest.fixture(scope="module", autouse=True)
def short_waits() -> None:
    """The waits of users, not the short ones of the other tests."""


# ---- taking ----


async def test_the_listener_is_called_before_the_pulls_begin_half_a_second_later() -> None:
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
    assert one.offsets.cached_offset(FOUR[3]) == -1
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


async def test_a_member_that_is_not_listed_owns_nothing() -> None:
    """Not even after another heartbeat."""
    one = Round(FakeInstance({MEMBERS: of_members("you")}))
    assert await one.rebalancer.run()
    assert one.mine == []
    assert one.instance.heartbeats_of == ["T"]


async def test_a_member_that_is_listed_twice_counts_once() -> None:
    """Brokers list a client once for each of its connections."""
    one = Round(FakeInstance({MEMBERS: of_members("me", "me")}))
    assert await one.rebalancer.run()
    assert one.mine == [0, 1, 2, 3]


async def test_a_strategy_that_fails_changes_nothing() -> None:
    one = Round()
    await one.rebalancer.run()

    def broken(*_: object) -> Sequence[MessageQueue]:
        raise ZeroDivisionError

    one.rebalancer._context.strategy = broken
    assert not await one.rebalancer.run()
    assert one.mine == [0, 1, 2, 3]


async def test_a_queue_is_not_begun_while_its_start_is_unknown() -> None:
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
    assert one.offsets.cached_offset(FOUR[0]) == -1


async def test_a_queue_that_is_not_pulled_is_begun_again() -> None:
    one = Round()
    await one.rebalancer.run()
    still = dict(one.table)
    one.time.advance(121_000)
    for queue in FOUR[1:]:
        one.table[queue].last_pull_s = one.time.now
    assert await one.rebalancer.run()
    assert one.table[FOUR[0]] is not still[FOUR[0]]
    assert still[FOUR[0]].dropped
    assert [one.table[queue] for queue in FOUR[1:]] == [still[queue] for queue in FOUR[1:]]


async def test_pull_queues_of_a_user_do_not_expire() -> None:
    one = Round(active=True)
    await one.rebalancer.run()
    still = dict(one.table)
    one.time.advance(1_000_000)
    assert await one.rebalancer.run()
    assert one.table == still


async def test_a_queue_that_was_dropped_elsewhere_is_begun_again() -> None:
    one = Round()
    await one.rebalancer.run()
    one.table[FOUR[2]].dropped = True
    assert await one.rebalancer.run()
    assert one.mine == [0, 1, 2, 3]


# ---- topics ----


async def test_broadcasting_takes_everything_without_a_request() -> None:
    one = Round(FakeInstance({}), model=MessageModel.BROADCASTING)
    assert await one.rebalancer.run()
    assert one.mine == [0, 1, 2, 3]
    assert one.instance.asked == []


@pytest.mark.parametrize("model", list(MessageModel))
async def test_a_topic_without_queues_is_reported_and_not_waited_for(model: MessageModel) -> None:
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


# ---- assigned by the broker ----


async def test_a_broker_assigns_queues_to_pull_and_to_pop() -> None:
    one = Round(FakeInstance({ASSIGN: assigning(q0="PULL", q1="POP")}), broker_assigns=True)
    assert await one.rebalancer.run()
    assert (list(one.rebalancer.table), list(one.rebalancer.pop_table)) == ([FOUR[0]], [FOUR[1]])
    await one.time.pass_by(0.6)
    assert one.happened == [("changed", "T", 4, [0, 1]), ("begin", 0, 0), ("pop", 1)]
    assert fastjson.loads(one.instance.asked[0].body) == {
        "clientId": "me",
        "consumerGroup": "group",
        "messageModel": "CLUSTERING",
        "strategyName": "AVG",
        "topic": "T",
    }


async def test_a_change_of_mode_moves_the_queue_and_the_retry_topic() -> None:
    one = Round(FakeInstance({ASSIGN: assigning(q0="POP")}), broker_assigns=True)
    assert await one.rebalancer.run()
    popped = one.rebalancer.pop_table[FOUR[0]]
    one.instance.says[ASSIGN] = assigning(q0="PULL")
    assert await one.rebalancer.run()
    assert popped.dropped
    assert (list(one.rebalancer.table), list(one.rebalancer.pop_table)) == ([FOUR[0]], [])
    assert one.of("retry") == [("retry", "%RETRY%group_T", False), ("retry", "%RETRY%group_T", True)]


async def test_a_queue_that_is_not_popped_is_begun_again() -> None:
    one = Round(FakeInstance({ASSIGN: assigning(q0="POP")}), broker_assigns=True)
    await one.rebalancer.run()
    popped = one.rebalancer.pop_table[FOUR[0]]
    one.time.advance(121_000)
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
    says = {ASSIGN: assigning(q0="PULL", q1="PULL"), MEMBERS: of_members()}
    one = Round(FakeInstance(says), broker_assigns=True)
    await one.rebalancer.run()
    one.instance.says[ASSIGN] = lambda request: request.answer(body=body)
    assert not await one.rebalancer.run()
    assert one.mine == [0, 1]


async def test_an_empty_assignment_means_drop_everything() -> None:
    says = {ASSIGN: assigning(q0="PULL", q1="POP"), MEMBERS: of_members("me", "you")}
    one = Round(FakeInstance(says), broker_assigns=True)
    await one.rebalancer.run()
    one.instance.says[ASSIGN] = assigning()
    assert await one.rebalancer.run()
    assert one.rebalancer.table == one.rebalancer.pop_table == {}
