"""LIST_TOPICS and LIST_GROUPS: all topics and groups in a few requests; and what the command line makes of them, which
equals what is asked group by group."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from firearrow._native.wire.codes import RequestCode
from firearrow.client import Admin, Extensions, blocking
from firearrow.client.admin_api import listings, overview
from firearrow.client.admin_api.listings import ListedGroup, ListedTopic
from firearrow.client.admin_api.requests import AdminCalls
from firearrow.client.base.errors import ClientError, OnlyFireArrow
from tests.support.broker_process import BrokerProcess
from tests.support.client_socket import ClientSocket
from tests.support.command_line import here
from tests.support.consumer_groups import commit, heartbeat, make_group
from tests.support.requests import send, topic_ext

COUNTS = {"A": (4, 0, 3), "B": (2, 2, 0)}
"""Messages of each queue."""
COMMITS = {("G1", "A"): {0: 4, 2: 1}, ("G1", "B"): {0: 0}, ("G2", "B"): {0: 2, 1: 2, 2: 0}}


def fill(connection: ClientSocket) -> None:
    for topic, counts in COUNTS.items():
        assert connection.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext(topic, len(counts))).code == 0
        for queue, count in enumerate(counts):
            for _ in range(count):
                assert send(connection, topic, b"x", queue).code == 0
    for group in ("G1", "G2", "G3"):
        make_group(connection, group)
    for (group, topic), offsets in COMMITS.items():
        for queue, offset in offsets.items():
            commit(connection, group, topic, queue, offset)


class Filled:
    def __init__(self, broker: BrokerProcess, connection: ClientSocket) -> None:
        assert broker.name_server is not None
        self.name_server = "{}:{}".format(*broker.name_server)
        self.connection = connection


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filled]:
    store = tmp_path_factory.mktemp("overview") / "store"
    with BrokerProcess(store, "--set", "brokerName=own") as broker, broker.connect() as connection:
        fill(connection)
        yield Filled(broker, connection)


def asked(filled: Filled, *, details: bool) -> tuple[dict[str, ListedTopic], dict[str, ListedGroup]]:
    async def ask() -> tuple[dict[str, ListedTopic], dict[str, ListedGroup]]:
        async with Admin(filled.name_server) as admin:
            extensions = Extensions(admin)
            return await extensions.topics("own"), await extensions.groups("own", details=details)

    return asyncio.run(ask())


def test_all_topics_and_groups(filled: Filled) -> None:
    topics, groups = asked(filled, details=False)
    assert {name: [queue.max_offset for queue in topics[name].queues] for name in COUNTS} == {
        name: list(counts) for name, counts in COUNTS.items()
    }
    assert topics["A"].queues[0].last_ms > topics["A"].queues[1].last_ms == 0
    assert (groups["G1"].topics, groups["G1"].consumed, groups["G1"].lag) == (2, 5, 2 + 4)
    assert (groups["G2"].lag, groups["G2"].lag_ms, groups["G3"].topics) == (0, 0, 0)
    assert 0 < groups["G1"].lag_ms < 3_600_000
    _, detailed = asked(filled, details=True)
    assert detailed["G1"].offsets == {"A": {0: 4, 2: 1}, "B": {0: 0}}
    assert (detailed["G3"].offsets, detailed["G3"].connections) == ({}, ())


def test_without_await(filled: Filled) -> None:
    with blocking.Admin(filled.name_server) as admin:
        extensions = blocking.Extensions(admin)
        assert extensions.topics("own", sizes=True)["A"].bytes > 0
        assert extensions.groups("own")["G1"].topics == 2


def test_a_broker_that_cannot_be_reached_is_left_out(filled: Filled, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = here("topic", "list", "--long", name_server=filled.name_server).rows
    assert {row["topic"]: (row["messages"], row["queues"]) for row in whole}["A"] == (7, 3)
    masters = AdminCalls.masters

    async def with_a_dead_one(calls: AdminCalls, cluster: str | None = None) -> dict[str, str]:
        return {**await masters(calls, cluster), "dead": "127.0.0.1:1"}

    monkeypatch.setattr(AdminCalls, "masters", with_a_dead_one)
    listed = here("topic", "list", "--long", name_server=filled.name_server)
    assert (listed.code, listed.lines) == (1, whole)
    assert "broker dead is left out: 127.0.0.1:1" in listed.err


def rows(filled: Filled) -> dict[str, dict[str, Any]]:
    listed = here("group", "list", "--long", name_server=filled.name_server).rows
    return {row["group"]: row for row in listed}


def test_the_list_says_what_group_lag_says(filled: Filled, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the bulk requests, and, as at Apache's brokers, group by group."""
    with filled.connection as _:
        heartbeat(filled.connection, "G2", "A", "B")
        by_list = rows(filled)
        top = here("top", "--once", "--every", "0.1", name_server=filled.name_server).rows
        for group in ("G1", "G2"):
            lag = here("group", "lag", group, name_server=filled.name_server).lines
            assert by_list[group]["lag"] == sum(row["lag"] for row in lag), group
            [row] = [row for row in top if row.get("group") == group]
            assert row["lag"] == by_list[group]["lag"]
        assert (by_list["G2"]["members"], by_list["G2"]["model"], by_list["G2"]["lag"]) == (
            1,
            "CLUSTERING",
            7,
        )
        assert (by_list["G3"]["members"], by_list["G3"]["lag"]) == (0, None)

        async def refuse(calls: object, address: str, *, details: bool = False) -> object:
            raise OnlyFireArrow(address)

        monkeypatch.setattr(overview, "listed_groups", refuse)
        monkeypatch.setattr(overview, "listed_topics", refuse)
        assert rows(filled) == by_list
        again = here("top", "--once", "--every", "0.1", name_server=filled.name_server).rows
        assert [{**row, "atMs": 0, "behindMs": 0} for row in again] == [
            {**row, "atMs": 0, "behindMs": 0} for row in top
        ]


def test_answers_that_cannot_be_read() -> None:
    for text in (
        b'{"topics":[{"topic":"T","queues":[[1,2,3]]}]}',
        b'{"topics":[{"topic":"T","queues":[["1",2,3,4]]}]}',
        b'{"topics":[7]}',
    ):
        with pytest.raises(ClientError):
            listings.read(text, listings._topics_page)
    for offsets in (b'{"T":7}', b'{"T":{"x":1}}', b'{"T":{"1":null}}'):
        with pytest.raises(ClientError):
            listings.read(b'{"groups":[{"group":"G","offsets":%b}]}' % offsets, listings._group_rows)
