"""Allocation of queues to clients: each queue once, evenly, and as Apache's clients would allocate them."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firearrow._native.protocol.message_queue import MessageQueue, averagely, by_circle
from firearrow.broker.tables.allocation import STRATEGIES, for_pop


def queues(count: int, *brokers: str) -> list[MessageQueue]:
    return [MessageQueue("T", broker, n) for broker in brokers or ("a",) for n in range(count)]


def clients(count: int) -> list[str]:
    return [f"c{n:02}" for n in range(count)]


def ids(found: Sequence[MessageQueue]) -> list[int]:
    return [queue.queue_id for queue in found]


@given(st.integers(1, 40), st.integers(1, 12), st.sampled_from(sorted(STRATEGIES)))
def test_every_queue_has_one_client_and_shares_are_even(
    queue_count: int, client_count: int, name: str
) -> None:
    shares = [
        STRATEGIES[name](client, queues(queue_count), clients(client_count))
        for client in clients(client_count)
    ]
    assert sorted(queue for share in shares for queue in share) == queues(queue_count)
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_neighbours_or_every_nth() -> None:
    """8 queues and 3 clients, as Java's AllocateMessageQueueAveragely and …ByCircle share them."""
    assert [ids(averagely(c, queues(8), clients(3))) for c in clients(3)] == [[0, 1, 2], [3, 4, 5], [6, 7]]
    assert [ids(by_circle(c, queues(8), clients(3))) for c in clients(3)] == [[0, 3, 6], [1, 4, 7], [2, 5]]


@pytest.mark.parametrize("name", sorted(STRATEGIES))
def test_an_unknown_client_gets_nothing(name: str) -> None:
    assert STRATEGIES[name]("x", queues(8), clients(3)) == []


@pytest.mark.parametrize("share", [-1, 0, 2, 7])
def test_pop_without_a_share_gets_every_broker_as_a_whole(share: int) -> None:
    """No share, or one that covers all clients: queue -1 of each broker, also for an unknown client."""
    found = for_pop(averagely, "x", queues(4, "a", "b"), clients(3), share)
    assert found == [MessageQueue("T", "a", -1), MessageQueue("T", "b", -1)]


def test_pop_with_a_share_gets_the_queues_of_the_next_clients() -> None:
    all_clients = clients(4)
    assert ids(for_pop(averagely, "c00", queues(8), all_clients, 1)) == [0, 1, 2, 3]
    assert ids(for_pop(averagely, "c03", queues(8), all_clients, 2)) == [6, 7, 0, 1, 2, 3]
    assert for_pop(averagely, "x", queues(8), all_clients, 1) == []


def test_more_clients_than_queues_pop_them_in_turn() -> None:
    found = [ids(for_pop(averagely, client, queues(2), clients(5), 1)) for client in clients(5)]
    assert found == [[0], [1], [0], [1], [0]]
