"""ExpectedReplicas: which slave is which, what is on the disk, and how many there may be."""

import json
from pathlib import Path

import pytest

from firearrow.broker.replication.log.pair_identity import PairIdentity
from firearrow.broker.replication.session.expected_replicas import (
    HOST_CHARS_MAX,
    REPLICAS_MAX,
    ExpectedReplica,
    ExpectedReplicas,
    Place,
    parsed,
)

FIRST, SECOND = "a" * 32, "b" * 32


def joined(expected: ExpectedReplicas, *places: Place) -> None:
    """Each was in sync for a while, and left."""
    for place in places:
        expected.connected(place, place)
        expected.in_sync(place, place)
        expected.stayed(place, place)
        expected.left(place, 100, 5_000)


def names(expected: ExpectedReplicas) -> list[str]:
    return [expected.name_of(each) for each in expected.missing()]


def test_slaves_are_told_apart_over_restarts(tmp_path: Path) -> None:
    expected = ExpectedReplicas(str(tmp_path))
    pair, plain = Place(FIRST, 1, "h", 10911), Place("", 0, "h", 0)
    expected.connected("one", pair)
    assert expected.all == []  # it was not in sync yet
    expected.in_sync("one", pair)
    assert [names(expected), names(ExpectedReplicas(str(tmp_path)))] == [[], []]  # nor for long
    expected.stayed("one", pair)
    assert names(expected) == []
    joined(expected, plain, Place(SECOND, 0, "h", 0))
    expected.stayed("two", plain)  # a second one of Apache's at the host
    assert names(ExpectedReplicas(str(tmp_path))) == ["h:10911", "h", "h#2", "h#3"]
    again = ExpectedReplicas(str(tmp_path))
    again.connected("moved", Place(FIRST, 3, "other", 1))
    assert names(again) == ["h", "h#2", "h#3"]
    again.connected("a new store", Place("c" * 32, 3, "x", 9))  # while number 3 is there, too
    assert len(again.missing()) == 3
    again.left("moved", 7, 9_000)
    again.connected("a new store", Place("c" * 32, 3, "x", 9))
    assert [each.address for each in again.all] == ["x:9", "h", "h", "h"]


def test_one_takes_the_place_of_another_only_if_it_may_be_the_same(tmp_path: Path) -> None:
    expected = ExpectedReplicas(str(tmp_path))
    joined(expected, Place(FIRST, 1, "h", 10911), Place("", 0, "i", 0))
    for other in (
        Place(SECOND, 2, "h", 10921),
        Place("", 0, "h", 0),
        Place(SECOND, 2, "i", 10911),
        Place("", 7, "i", 0),
    ):
        expected.connected(other, other)
        assert names(expected) == ["h:10911", "i"], other
    same = Place(SECOND, 2, "h", 10911)
    expected.connected(same, same)
    assert names(expected) == ["i"]


def test_of_two_that_look_alike_the_missing_one_is_forgotten(tmp_path: Path) -> None:
    expected = ExpectedReplicas(str(tmp_path))
    place = Place("", 0, "h", 0)
    for connection in (1, 2):
        expected.stayed(connection, place)
    for connection in (1, 2):
        expected.left(connection, 100, 5_000)
    expected.connected(3, place)
    assert names(expected) == ["h#2"]
    assert expected.forget("h#2")
    known = expected.of(3)
    assert known is not None
    assert [each is known for each in expected.all] == [True]


def test_the_list_is_bounded(tmp_path: Path) -> None:
    """Slaves without an id make room, those with one do not."""
    expected = ExpectedReplicas(str(tmp_path))
    joined(expected, Place(FIRST, 1, "h", 1))
    joined(expected, *(Place("", 0, f"10.0.{number}.1", 0) for number in range(200)))
    assert len(expected.all) == REPLICAS_MAX
    assert names(expected)[0] == "h:1"
    assert "10.0.199.1" in names(expected)
    with_ids = ExpectedReplicas(str(tmp_path / "other"))
    joined(with_ids, *(Place(f"{number:032x}", number, "h", number) for number in range(1, 200)))
    assert [each.broker_id for each in with_ids.all] == list(range(1, REPLICAS_MAX + 1))


def test_all_that_are_missing_are_forgotten_at_once(tmp_path: Path) -> None:
    expected = ExpectedReplicas(str(tmp_path))
    joined(expected, *(Place(f"{number:032x}", number, "h", number) for number in range(1, 60)))
    there = Place(f"{7:032x}", 7, "h", 7)
    expected.connected(there, there)
    expected.unknown = 1
    assert expected.forget_missing() == 59
    assert expected.forget_missing() == 0
    again = ExpectedReplicas(str(tmp_path))
    assert (names(again), again.unknown) == (["h:7"], 0)
    assert (names(expected), expected.of(there)) == ([], expected.all[0])


def test_a_store_of_a_pair_from_before_the_list_expects_one(tmp_path: Path) -> None:
    assert ExpectedReplicas(str(tmp_path)).unknown == 0
    PairIdentity(tmp_path / "config").found_pair()
    expected = ExpectedReplicas(str(tmp_path))
    assert expected.unknown == 1
    joined(expected, Place(FIRST, 1, "h", 1))
    assert (expected.unknown, names(ExpectedReplicas(str(tmp_path)))) == (0, ["h:1"])
    assert ExpectedReplicas(str(tmp_path)).unknown == 0


def test_a_slave_keeps_its_masters_list(tmp_path: Path) -> None:
    expected = ExpectedReplicas(str(tmp_path))
    master = Place(FIRST, 0, "m", 10911)
    expected.follow(master)
    others = [ExpectedReplica(SECOND, 2, "s", 1, end=7, seen_ms=8)]
    expected.follow(master, others)
    expected.follow(master)
    assert names(ExpectedReplicas(str(tmp_path))) == ["m:10911", "s:1"]
    expected.follow(Place(SECOND, 0, "s", 1))  # the other slave was promoted
    assert [each.node for each in expected.all] == [SECOND, FIRST]
    assert expected.forget("m:10911")
    assert not expected.forget("m:10911")
    assert names(ExpectedReplicas(str(tmp_path))) == ["s:1"]


@pytest.mark.parametrize(
    "entry",
    [
        7,
        {"node": "x"},
        {"host": "a\n"},
        {"host": "a" * 256},
        {"port": 65_536},
        {"broker_id": -1},
        {"end": "x"},
    ],
)
def test_a_list_that_cannot_be_is_refused(tmp_path: Path, entry: object) -> None:
    with pytest.raises(ValueError, match=r"."):
        parsed([entry])
    file = tmp_path / "config" / "expectedReplicas.json"
    file.parent.mkdir()
    file.write_text(json.dumps({"replicas": [entry]}))
    assert ExpectedReplicas(str(tmp_path)).all == []
    assert (file.parent / "expectedReplicas.json.damaged-1").exists()
    assert len(parsed([{}] * 1000)) == REPLICAS_MAX
    assert parsed([{"host": "a" * HOST_CHARS_MAX}])[0].host


def test_one_that_connects_again_before_its_silent_connection_is_closed_is_one(tmp_path: Path) -> None:
    """By its number, with a new store; one of Apache's by its host, where another one may be."""
    lost = ExpectedReplicas(str(tmp_path / "lost"))
    for node in (FIRST, SECOND):
        lost.connected(node, Place(node, 1, node, 1))
        lost.in_sync(node, Place(node, 1, node, 1))
        if node == FIRST:
            lost.stayed(node, Place(node, 1, node, 1))
    lost.left(FIRST, 100, 5_000, [SECOND])
    assert (len(lost.all), lost.missing()) == (1, [])
    lost.left(SECOND, 100, 6_000)  # at once, but as the one that was known
    assert names(lost) == [f"{SECOND}:1"]
    expected, plain = ExpectedReplicas(str(tmp_path)), Place("", 0, "h", 0)
    for connection in ("first", "second"):
        expected.connected(connection, plain)
        expected.stayed(connection, plain)
    expected.left("first", 100, 5_000, ["second"])
    assert [names(each) for each in (expected, ExpectedReplicas(str(tmp_path)))] == [[], ["h"]]
    expected.connected("third", plain)
    expected.stayed("third", plain)
    expected.left("second", 100, 6_000)  # it closed its connection
    assert names(expected) == ["h"]
    expected.connected("fourth", plain)
    expected.in_sync("fourth", plain)
    expected.left("third", 100, 7_000, ["fourth"])  # that was known before
    assert names(expected) == ["h#2"]
