"""How operators reset the offsets of a running group. Rules, with fakes."""

import asyncio

import pytest

from firearrow._native.protocol import fastjson
from firearrow._native.wire.command import FieldError, RemotingCommand
from firearrow.client.base.message import MessageQueue
from firearrow.client.diagnostics.reset_offsets import OffsetReset, ResetRequest
from tests.client.rebalancing import FOUR, MEMBERS, Round, of_members
from tests.client.records import received
from tests.client.rounds import FakeInstance

QUEUE = FOUR[0]


@pytest.mark.parametrize(
    ("body", "ext"),
    [
        (b"{", {"group": "g", "topic": "T"}),
        (b"[]", {"group": "g", "topic": "T"}),
        (b'{"offsetTable":{"T":5}}', {"group": "g", "topic": "T"}),
        (
            b'{"offsetTable":[{"brokerName":"b","queueId":0,"topic":"T","offset":-1}]}',
            {"group": "g", "topic": "T"},
        ),
        (b"", {"group": "g"}),
    ],
)
def test_a_reset_that_cannot_be_read_is_refused(body: bytes, ext: dict[str, str]) -> None:
    with pytest.raises((fastjson.JsonError, FieldError)):
        ResetRequest.of(RemotingCommand.request(220, ext, body))


def test_a_reset_comes_as_java_s_map_or_as_the_list_for_others() -> None:
    in_list = [{"brokerName": "broker-a", "offset": 5, "queueId": 0, "topic": "T"}]
    for table in ({QUEUE: 5}, in_list):
        request = RemotingCommand.request(
            220, {"group": "g", "topic": "T"}, fastjson.dumps({"offsetTable": table})
        )
        assert ResetRequest.of(request) == ResetRequest("T", "g", {QUEUE: 5})


def reset_of(one: Round, **more: object) -> OffsetReset:
    async def resume() -> None:
        one.happened.append("resume")

    async def sleep(seconds: float) -> None:
        one.happened.append(
            ("sleep", seconds, [queue.queue_id for queue, held in one.table.items() if held.dropped])
        )

    return OffsetReset(
        rebalancer=one.rebalancer, offsets=one.offsets, pause=lambda: one.happened.append("pause"), resume=resume,
        sleep=sleep, **more,
    )  # type: ignore[arg-type]  # fmt: skip


async def test_a_reset_gives_the_queues_up_waits_and_persists_the_new_offsets() -> None:
    one = Round()
    await one.rebalancer.run()
    one.happened.clear()
    held = one.table[FOUR[0]]
    held.put(received(FOUR[0], (1,)))
    one.offsets.update_and_freeze(FOUR[0], 99)
    await reset_of(one).run("T", {FOUR[0]: 7, FOUR[1]: 0, MessageQueue("T", "elsewhere", 9): 5})
    assert one.happened == [
        "pause",
        ("sleep", 10.0, [0, 1]),
        ("persist", 0, 7),
        ("persist", 1, 0),
        "resume",
    ]
    assert one.mine == [2, 3]
    assert not held.has_messages
    assert one.offsets.snapshot() == {}


async def test_a_reset_of_nothing_of_ours_does_not_wait() -> None:
    one = Round()
    await one.rebalancer.run()
    one.happened.clear()
    await reset_of(one).run("other", {FOUR[0]: 7})
    assert one.happened == ["pause", "resume"]
    assert one.mine == [0, 1, 2, 3]


async def test_in_order_a_reset_waits_for_the_handler_and_no_longer_than_it_may(
    caplog: pytest.LogCaptureFixture,
) -> None:
    one = Round()
    await one.rebalancer.run()
    reset, lock = reset_of(one, orderly=True, settle_s=5), one.table[FOUR[0]].consume_lock
    await lock.acquire()
    task = asyncio.create_task(reset.run("T", {FOUR[0]: 7}))
    await asyncio.sleep(0.01)
    assert not one.of("persist")
    lock.release()
    await task
    assert one.of("persist") == [("persist", 0, 7)]
    assert not one.of("sleep")
    reset.settle_s = 0.01
    await one.table[FOUR[1]].consume_lock.acquire()
    await reset.run("T", {FOUR[1]: 8})
    assert one.of("persist")[-1] == ("persist", 1, 8)
    assert "a handler still runs for" in caplog.text


async def test_a_consumer_goes_on_after_a_reset_that_failed() -> None:
    one = Round()
    await one.rebalancer.run()

    async def fail(queue: MessageQueue) -> None:
        raise OSError("no disk")

    one.offsets.persist = fail  # type: ignore[method-assign]
    with pytest.raises(OSError, match="no disk"):
        await reset_of(one).run("T", {FOUR[0]: 7})
    assert one.happened[-1] == "resume"


async def test_resets_come_one_after_the_other() -> None:
    one = Round(FakeInstance({MEMBERS: of_members("me")}))
    await one.rebalancer.run()
    one.happened.clear()
    reset = reset_of(one)
    await asyncio.gather(reset.run("T", {FOUR[0]: 7}), reset.run("T", {FOUR[1]: 8}))
    assert [what for what in one.happened if isinstance(what, str)] == ["pause", "resume", "pause", "resume"]
