"""ClientTable: memberships follow heartbeats and connections, and the memory that they use is bounded."""

import pytest

from firearrow._native.base.hash import java_hash
from firearrow.broker.tables.clients import (
    ASKERS_MAX,
    COMPENSATIONS_MAX,
    DIGEST_WEIGHT,
    DIGESTS_PER_GROUP_MAX,
    WARN_PAUSE_MS,
    ClientsFull,
    ClientTable,
)
from firearrow.broker.tables.members import Member
from firearrow.broker.tables.subscriptions import InvalidSubscription, Subscription
from tests.support.clock import ManualClock
from tests.support.peers import RecordedPeer


def member(peer: RecordedPeer, client: str = "c", seen_ms: int = 0) -> Member:
    return Member(client, peer, 0, 513, seen_ms)


def begin(table: ClientTable, group: str, one: Member) -> bool:
    return table.begin_consumer(group, one, "CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_LAST_OFFSET")


def test_a_member_is_new_once() -> None:
    table, peer = ClientTable(ManualClock()), RecordedPeer()
    assert begin(table, "G", member(peer))
    assert not begin(table, "G", member(peer))
    assert not begin(table, "G", member(peer, "renamed"))
    group = table.consumer_group("G")
    assert group is not None
    assert group.client_ids() == ["renamed"]
    assert (found := group.member("renamed"))
    assert found.peer is peer
    assert group.member("c") is None


def asker(peer: RecordedPeer, user: str | None, client: str = "c", seen_ms: int = 0) -> Member:
    return Member(client, peer, 0, 513, seen_ms, user)


def test_a_client_id_is_the_users_that_announced_it_first() -> None:
    """Who gets the replies to it. A connection that was lost keeps it until its heartbeat has expired."""
    clock = ManualClock()
    table, mine, stranger = ClientTable(clock, channel_expired_ms=100), RecordedPeer(), RecordedPeer()
    start = clock.monotonic_ms()
    table.note_producer("A", asker(mine, "owner", seen_ms=start))
    table.note_producer("B", asker(stranger, "app", seen_ms=start))
    assert table.producer("c") is mine
    table.leave_all(mine)
    table.note_producer("B", asker(stranger, "app", seen_ms=start))
    assert table.producer("c") is mine
    again = RecordedPeer()
    table.note_producer("A", asker(again, "owner", seen_ms=start))
    assert table.producer("c") is again
    clock.advance(101)
    table.note_producer("B", asker(stranger, "app", seen_ms=clock.monotonic_ms()))
    assert table.producer("c") is stranger
    table.leave_all(stranger)
    clock.advance(101)
    table.expired()
    assert table.producer("c") is None


def test_without_users_the_last_connection_of_a_client_id_counts() -> None:
    table, first, last = ClientTable(ManualClock()), RecordedPeer(), RecordedPeer()
    for peer in (first, last):
        table.note_producer("A", asker(peer, None))
    assert table.producer("c") is last
    table.leave_all(last)
    assert table.producer("c") is None


def test_client_ids_that_are_kept_are_bounded() -> None:
    table, peer = ClientTable(ManualClock()), RecordedPeer()
    for n in range(ASKERS_MAX + 100):
        table.note_producer("A", asker(peer, "app", f"c{n}"))
    kept = [n for n in range(ASKERS_MAX + 100) if table.producer(f"c{n}")]
    assert ASKERS_MAX <= len(kept) <= ASKERS_MAX + 1


def test_groups_of_a_connection_are_bounded() -> None:
    table, peer = ClientTable(ManualClock(), memberships_max=2), RecordedPeer()
    for name in ("A", "B", "A"):
        begin(table, name, member(peer))
        table.note_producer(name, member(peer))
    with pytest.raises(ClientsFull, match="2 groups"):
        begin(table, "C", member(peer))
    with pytest.raises(ClientsFull, match="2 groups"):
        table.note_producer("C", member(peer))
    assert [group.name for group in table.leave_all(peer)] == ["A", "B"]
    assert begin(table, "C", member(peer))


def test_the_weight_of_subscriptions_is_bounded_and_released() -> None:
    one = Subscription("T", "A", ("A",), frozenset({65}), 1)
    table, peer, other = ClientTable(ManualClock(), weight_max=2 * one.weight), RecordedPeer(), RecordedPeer()
    begin(table, "G", member(peer))
    begin(table, "H", member(other))
    assert table.subscribe("G", one, peer)
    assert not table.subscribe("G", one, peer)
    assert table.subscribe("H", one, other)
    with pytest.raises(ClientsFull, match="memory"):
        table.subscribe("H", Subscription("U"), other)
    with pytest.raises(ClientsFull, match="memory"):
        table.subscribe("H", Subscription("T", "x" * 64, ("A",), frozenset({65}), 2), other)
    assert table.unsubscribe_others("G", set())
    assert table.subscribe("H", Subscription("U"), other)
    table.leave_all(other)
    begin(table, "G", member(peer))
    both = [Subscription(topic, "A", ("A",), frozenset({65})) for topic in "AB"]
    assert all(table.subscribe("G", subscription, peer) for subscription in both)


def tagged(tag: str, version: int) -> Subscription:
    return Subscription("T", tag, (tag,), frozenset({java_hash(tag)}), version)


def effective(table: ClientTable) -> tuple[str, int]:
    found = table.subscription("G", "T")
    assert found is not None
    return found.expression, found.version


def test_a_lower_version_counts_once_the_newer_member_has_left() -> None:
    table, old, new, third = ClientTable(ManualClock()), RecordedPeer(), RecordedPeer(), RecordedPeer()
    for peer, client in ((old, "old"), (new, "new"), (third, "third")):
        begin(table, "G", member(peer, client))
    table.subscribe("G", tagged("v1", 9), old)
    table.set_fingerprint("G", 5)
    table.subscribe("G", tagged("v2", 3), new)
    table.subscribe("G", tagged("v3", 2), third)
    assert effective(table) == ("v1", 9), "the highest version counts while its member is online"
    table.subscribe("G", tagged("v1", 9), old)
    table.leave_consumer("G", old)
    assert effective(table) == ("v2", 9), "at once, not with the next heartbeat: pulls go on meanwhile"
    assert table.set_fingerprint("G", 5), (
        "clients that send only a fingerprint send their subscriptions again"
    )
    table.leave_all(new)
    table.subscribe("G", tagged("v3", 2), third)
    assert effective(table) == ("v3", 9)
    table.subscribe("G", tagged("v4", 10), third)
    assert effective(table) == ("v4", 10)


def test_a_clock_that_was_set_back_does_not_keep_the_clients_own_old_subscription() -> None:
    table, peer, again = ClientTable(ManualClock()), RecordedPeer(), RecordedPeer()
    begin(table, "G", member(peer, "c"))
    table.subscribe("G", tagged("v1", 9), peer)
    table.subscribe("G", tagged("v2", 3), peer)
    assert effective(table) == ("v2", 9)
    begin(table, "G", member(again, "c"))
    table.subscribe("G", tagged("v3", 1), again)
    assert effective(table) == ("v3", 9), "the same client on another connection"


def test_a_member_with_the_same_subscription_keeps_it() -> None:
    """It inherits the subscription of the one that left, with its version: pulls carry either."""
    table, first, second = ClientTable(ManualClock()), RecordedPeer(), RecordedPeer()
    for peer, client in ((first, "1"), (second, "2")):
        begin(table, "G", member(peer, client))
    table.subscribe("G", tagged("v1", 9), first)
    table.subscribe("G", tagged("v1", 8), second)
    table.leave_consumer("G", first)
    table.subscribe("G", tagged("v1", 8), second)
    begin(table, "G", member(first, "1"))
    table.subscribe("G", tagged("v0", 7), first)
    assert effective(table) == ("v1", 9)


def test_rivals_weigh_and_are_given_back() -> None:
    one = tagged("v1", 9)
    table, first, second = (
        ClientTable(ManualClock(), weight_max=2 * one.weight),
        RecordedPeer(),
        RecordedPeer(),
    )
    for _ in range(3):
        for peer, client in ((first, "1"), (second, "2")):
            begin(table, "G", member(peer, client))
        table.subscribe("G", one, first)
        table.subscribe("G", tagged("v2", 3), second)
        table.subscribe("G", tagged("v3", 4), second)
        with pytest.raises(ClientsFull, match="memory"):
            table.subscribe("G", Subscription("U"), second)
        table.leave_all(first)
        assert table.subscribe("G", Subscription("U"), second)
        table.leave_all(second)


def test_nothing_is_subscribed_for_a_removed_group() -> None:
    table = ClientTable(ManualClock())
    assert not table.subscribe("G", Subscription("T"), RecordedPeer())
    assert not table.unsubscribe_others("G", set())
    assert not table.set_fingerprint("G", 1)
    assert table.subscription("G", "T") is None


def test_a_compensation_serves_until_it_is_old_or_a_heartbeat_comes() -> None:
    clock = ManualClock()
    table, peer = ClientTable(clock), RecordedPeer()
    table.compensate("G", Subscription("T", "A"))
    assert (found := table.subscription("G", "T"))
    assert found.expression == "A"
    begin(table, "G", member(peer, seen_ms=clock.monotonic_ms()))
    table.subscribe("G", Subscription("T", "B"), peer)
    assert (found := table.subscription("G", "T"))
    assert found.expression == "B"
    table.leave_all(peer)
    clock.advance(600_000)
    table.expired()
    assert table.subscription("G", "T") is not None
    clock.advance(1)
    assert table.expired() == []
    assert table.subscription("G", "T") is None


def test_compensations_are_bounded_and_the_oldest_is_dropped() -> None:
    table = ClientTable(ManualClock())
    for n in range(COMPENSATIONS_MAX + 1):
        table.compensate("G", Subscription(f"T{n}"))
    assert table.subscription("G", "T0") is None
    assert table.subscription("G", "T1") is not None
    assert table.subscription("G", f"T{COMPENSATIONS_MAX}") is not None


@pytest.mark.parametrize(
    ("text", "value"),
    [("", 0), ("TagA", 2598919), ("TagB", 2598920), ("polygenelubricants", -(2**31)), ("ü€😀", 17318035)],
)
def test_hashes_are_javas(text: str, value: int) -> None:
    assert java_hash(text) == value


@pytest.mark.parametrize(
    ("expression", "tags"),
    [
        ("*", ()),
        ("", ()),
        ("A", ("A",)),
        ("A||B", ("A", "B")),
        (" A ||  B || A", ("A", "B")),
        ("A||", ("A",)),
    ],
)
def test_expressions_are_split_into_tags(expression: str, tags: tuple[str, ...]) -> None:
    found = Subscription.of_expression("T", expression, 5)
    assert (found.tags, found.codes) == (tags, frozenset(map(java_hash, tags)))
    assert Subscription.from_object(found.to_object()) == found


@pytest.mark.parametrize("expression", ["||", " || ", "x" * 65537])
def test_wrong_expressions_are_refused(expression: str) -> None:
    with pytest.raises(InvalidSubscription):
        Subscription.of_expression("T", expression)


def test_other_languages_are_kept_as_they_are() -> None:
    found = Subscription.of_expression("T", "a > 1 || b", 5, "SQL92")
    assert (found.is_tag, found.expression, found.tags) == (False, "a > 1 || b", ())


def differing(
    table: ClientTable, peers: list[RecordedPeer], numbers: list[int]
) -> list[tuple[str, list[str]]]:
    found = []
    for peer, number in zip(peers, numbers, strict=True):
        found += table.note_digest("G", peer, number, f"text {number}")
    return found


def test_texts_of_different_subscriptions_are_bounded_and_released() -> None:
    weight_max = DIGESTS_PER_GROUP_MAX * DIGEST_WEIGHT
    table = ClientTable(ManualClock(), weight_max=weight_max)
    peers = [RecordedPeer() for _ in range(DIGESTS_PER_GROUP_MAX + 1)]
    for number, peer in enumerate(peers):
        begin(table, "G", member(peer, f"c{number}"))
    differing(table, peers[:-1], [*range(1, DIGESTS_PER_GROUP_MAX + 1)])
    texts = [text for text, _ in table.differences()["G"]]
    assert texts == ["text 1", "text 2", "text 3", "text 4"]
    differing(table, peers[-1:], [99])
    texts = [text for text, _ in table.differences()["G"]]
    assert texts == ["?", "text 2", "text 3", "text 4", "text 99"], "the oldest text is dropped"
    for peer in peers:
        table.leave_all(peer)
    assert table.differences() == {}
    begin(table, "H", member(peers[0]))
    assert table.subscribe("H", Subscription("T", "x" * 64 * (weight_max - 3)), peers[0]), (
        "all weight is free"
    )


def test_a_difference_is_reported_once_and_again_after_it_was_mended() -> None:
    clock = ManualClock()
    table, peers = ClientTable(clock), [RecordedPeer(), RecordedPeer()]
    begin(table, "G", member(peers[0], "a"))
    begin(table, "G", member(peers[1], "b"))
    assert differing(table, peers, [1, 2]) == [("text 1", ["a"]), ("text 2", ["b"])]
    clock.advance(WARN_PAUSE_MS)
    assert differing(table, peers, [1, 2]) == []
    assert differing(table, peers, [1, 1]) == []
    assert differing(table, peers, [1, 2]) == [("text 1", ["a"]), ("text 2", ["b"])]
    assert differing(table, peers, [3, 2]) == [], "not so soon"
    clock.advance(WARN_PAUSE_MS)
    assert differing(table, peers, [3, 2]) == [("text 3", ["a"]), ("text 2", ["b"])], "at the next heartbeat"
