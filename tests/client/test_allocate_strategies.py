"""The split of queues among members, as Apache's classes of 5.5.0 computed it (allocations.json), and its promises."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firearrow.client.base.errors import ConfigError
from firearrow.client.base.message import MessageQueue, java_order
from firearrow.client.rebalance.allocate_strategies import (
    ConsistentHash,
    FixedQueues,
    MachineRoom,
    MachineRoomNearby,
    Strategy,
    averagely,
    by_circle,
    name_of,
    strategy_of,
)

GOLDEN = json.loads((Path(__file__).parent / "allocations.json").read_text())


def machine_room(name: str) -> str:
    before, separator, _ = name.partition("@")
    return before if separator else "none"


def nearby(inner: str) -> MachineRoomNearby:
    return MachineRoomNearby(inner, lambda queue: machine_room(queue.broker_name), machine_room)


STRATEGIES: tuple[Strategy, ...] = (
    averagely,
    by_circle,
    MachineRoom({"r1", "r2"}),
    ConsistentHash(),
    nearby("AVG"),
    nearby("CONSISTENT_HASH"),
)


def queues_of(count: int) -> list[MessageQueue]:
    return [MessageQueue("T", "b", number) for number in range(count)]


@pytest.mark.parametrize(
    "row", GOLDEN, ids=lambda row: f"{row['strategy']}-{len(row['queues'])}-{len(row['members'])}"
)
def test_members_get_what_java_gives_them(row: dict[str, Any]) -> None:
    strategy = next(strategy for strategy in STRATEGIES if name_of(strategy) == row["strategy"])
    queues = [MessageQueue(*queue) for queue in row["queues"]]
    members: list[str] = row["members"]
    assert [
        [queues.index(queue) for queue in strategy("g", member, queues, members)] for member in members
    ] == row["shares"]


def test_queues_and_members_are_sorted_as_java_sorts_them() -> None:
    for row in GOLDEN:
        queues = [MessageQueue(*queue) for queue in row["queues"]]
        assert sorted(queues) == queues
        assert sorted(row["members"], key=java_order) == row["members"]
    assert sorted(["\uff41", "\U0001f600"], key=java_order) == ["\U0001f600", "\uff41"], (
        "by UTF-16, not by code point"
    )


@given(st.integers(1, 40), st.integers(1, 40), st.sampled_from([averagely, by_circle, ConsistentHash()]))
def test_each_queue_has_exactly_one_owner(queue_count: int, member_count: int, strategy: Strategy) -> None:
    queues, members = queues_of(queue_count), [f"10.0.0.{n}@x" for n in range(member_count)]
    owned = [queue for member in members for queue in strategy("g", member, queues, members)]
    assert sorted(owned) == queues


@pytest.mark.parametrize("strategy", STRATEGIES, ids=name_of)
def test_a_client_that_is_no_member_gets_nothing(strategy: Strategy) -> None:
    assert list(strategy("g", "r1@me", queues_of(3), ["r1@other"])) == []


@pytest.mark.parametrize("strategy", STRATEGIES, ids=name_of)
@pytest.mark.parametrize(
    ("client_id", "queues", "members"),
    [("", queues_of(1), ["r@a"]), ("r@a", [], ["r@a"]), ("r@a", queues_of(1), [])],
)
def test_nothing_can_be_split_among_no_members(
    strategy: Strategy, client_id: str, queues: Sequence[MessageQueue], members: list[str]
) -> None:
    with pytest.raises(ValueError, match="client id, queues and members"):
        strategy("g", client_id, queues, members)


def test_a_room_without_a_name_is_refused() -> None:
    with pytest.raises(ValueError, match="no machine room is known"):
        MachineRoomNearby("AVG", lambda queue: "", machine_room)("g", "r@a", queues_of(1), ["r@a"])
    with pytest.raises(ValueError, match="no machine room is known"):
        MachineRoomNearby("AVG", lambda queue: "r", lambda client: "")("g", "r@a", queues_of(1), ["r@a"])


def test_fixed_queues_do_not_depend_on_the_members() -> None:
    assert FixedQueues(queues_of(2))("g", "nobody", [], []) == tuple(queues_of(2))


def test_a_ring_without_nodes_gives_nothing() -> None:
    assert ConsistentHash(0)("g", "a", queues_of(3), ["a"]) == []
    with pytest.raises(ConfigError, match="virtual_nodes: -1 is not within"):
        ConsistentHash(-1)


def test_options_name_a_strategy_or_are_one() -> None:
    def mine(
        group: str, client_id: str, queues: Sequence[MessageQueue], members: Sequence[str]
    ) -> list[MessageQueue]:
        return list(queues)

    assert strategy_of("AVG") is averagely
    assert strategy_of(mine) is mine
    assert name_of(mine) == "mine"
    assert [name_of(strategy_of(name)) for name in ("AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH")] == [
        "AVG",
        "AVG_BY_CIRCLE",
        "CONSISTENT_HASH",
    ]
    assert name_of(FixedQueues([])) == "CONFIG"
    with pytest.raises(
        ConfigError, match="allocate 'MEDIAN' is unknown: use AVG, AVG_BY_CIRCLE, CONSISTENT_HASH"
    ):
        strategy_of("MEDIAN")
