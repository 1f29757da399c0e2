"""Our handlers answer as Apache did: the whole recording is replayed to them, in order of time.

Topics that the recorded clients created by sending, and offsets that they committed with a pull, are created and
committed here as well, because other modules answer those codes. Values that come from messages are not compared.
"""

import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from firearrow._native.protocol import fastjson
from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from tests.golden import Recorded, session, sessions
from tests.support.handler_harness import HandlerHarness
from tests.support.peers import RecordedPeer

Connection = tuple[str, int]

BY_STORE = frozenset(
    (
        RequestCode.GET_MAX_OFFSET,
        RequestCode.GET_MIN_OFFSET,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
        RequestCode.GET_EARLIEST_MSG_STORETIME,
        RequestCode.GET_TOPIC_STATS_INFO,
    )
)
"""Their values come from the messages; code, remark and fields are compared."""

MADE_BY_POP = "%RETRY%CG_POP_GoldenPop"
"""A topic that only POP creates, which these handlers do not serve."""

SENDS = {10: ("topic", "defaultTopic", "defaultTopicQueueNums"), 310: ("b", "c", "d"), 320: ("b", "c", "d")}
COMMITTING = 1


class Played(NamedTuple):
    name: str
    request: RemotingCommand
    expected: dict[str, Any] | None
    ours: RemotingCommand | None


def frames() -> Iterator[Recorded]:
    """All frames between clients and the broker, by time. The signed sessions went to another broker."""
    found = [
        recorded
        for name in sessions()
        if not name.startswith("acl")
        for recorded in session(name)
        if recorded.line["peer"] == "broker"
    ]
    return iter(sorted(found, key=lambda recorded: recorded.line["ts"]))


def connection(recorded: Recorded) -> Connection:
    return recorded.line["session"], recorded.line["conn"]


class Player:
    def __init__(self) -> None:
        self.harness = HandlerHarness()
        self.peers: dict[Connection, RecordedPeer] = {}
        self.answers: dict[tuple[Connection, int], dict[str, Any]] = {}
        self.last: dict[Connection, int] = {}
        for n, recorded in enumerate(frames()):
            self.last[connection(recorded)] = n
            if recorded.line["dir"] == "s2c" and recorded.line["kind"] == "response":
                self.answers[connection(recorded), recorded.line["opaque"]] = recorded.line

    def play(self) -> Iterator[Played]:
        known = {int(code) for code in self.harness.dispatch._handlers}
        for n, recorded in enumerate(frames()):
            line, where = recorded.line, connection(recorded)
            self.harness.clock.advance(max(0, line["ts"] - self.harness.clock.now_ms()))
            if line["dir"] == "c2s" and line["kind"] != "response" and recorded.raw is not None:
                request = RemotingCommand.decode(recorded.raw)
                self.follow(request, self.answers.get((where, request.opaque), {"code": 0}))
                if request.code in known:
                    yield self.hand(line, where, request)
            if n == self.last[where] and where in self.peers:
                self.peers.pop(where).close()

    def hand(self, line: dict[str, Any], where: Connection, request: RemotingCommand) -> Played:
        peer = self.peers.setdefault(where, RecordedPeer())
        expected = None if request.is_oneway else self.answers.get((where, request.opaque))
        if request.is_oneway:
            self.harness.dispatch(request, peer)
            return Played(line["name"], request, None, None)
        return Played(line["name"], request, expected, self.harness.hand(request, peer))

    def follow(self, request: RemotingCommand, answer: dict[str, Any]) -> None:
        """Do what codes do that other modules serve."""
        if request.code in SENDS and answer["code"] == 0:
            topic, template, count = (request.ext.get(key, "") for key in SENDS[request.code])
            self.harness.topics.create_by_send(topic, template, int(count or 0))
        elif request.code in (11, 361) and request.integer_or("sysFlag", 0) & COMMITTING:
            group, topic = request.text("consumerGroup"), request.text("topic")
            queue_id = request.integer("queueId")
            if not self.harness.offsets.has_reset(group, topic, queue_id):
                self.harness.offsets.commit(group, topic, queue_id, request.integer("commitOffset"))
        elif request.code == RequestCode.INVOKE_BROKER_TO_RESET_OFFSET and answer.get("bodyText"):
            ends = fastjson.loads(answer["bodyText"])["offsetTable"].items()
            self.harness.fake.times = {(queue.topic, queue.queue_id): [1] * end for queue, end in ends}


@functools.cache
def played() -> list[Played]:
    return list(Player().play())


def comparable(body: object) -> object:
    """Without the order of Java's sets, and without the versions of the run."""
    if isinstance(body, dict):
        gone = ("dataVersion", "mappingDataVersion")
        return {str(key): comparable(value) for key, value in body.items() if key not in gone}
    if isinstance(body, list):
        return sorted(map(str, map(comparable, body)))
    return body


def of(*names: str) -> list[Played]:
    found = [one for one in played() if one.name in names and one.expected is not None]
    assert found, names
    return found


@pytest.mark.parametrize(
    "name",
    [
        "HEART_BEAT",
        "UNREGISTER_CLIENT",
        "GET_CONSUMER_LIST_BY_GROUP",
        "LOCK_BATCH_MQ",
        "UNLOCK_BATCH_MQ",
        "UPDATE_CONSUMER_OFFSET",
        "UPDATE_AND_CREATE_TOPIC",
        "DELETE_TOPIC_IN_BROKER",
        "GET_TOPIC_CONFIG",
        "GET_SYSTEM_TOPIC_LIST_FROM_BROKER",
        "CLEAN_UNUSED_TOPIC",
        "CLEAN_EXPIRED_CONSUMEQUEUE",
        "DELETE_EXPIRED_COMMITLOG",
        "UPDATE_AND_CREATE_SUBSCRIPTIONGROUP",
        "DELETE_SUBSCRIPTIONGROUP",
        "INVOKE_BROKER_TO_RESET_OFFSET",
    ],
)
def test_answers_agree(name: str) -> None:
    for one in of(name):
        assert one.expected is not None
        assert one.ours is not None
        if one.request.ext.get("topic") == MADE_BY_POP:
            continue
        text = one.expected.get("bodyText") or ""
        theirs = (one.expected["code"], one.expected.get("remark"), one.expected.get("extFields") or {})
        assert (one.ours.code, one.ours.remark, one.ours.ext) == theirs, one.request
        assert bool(one.ours.body) == bool(text)
        if text:
            assert comparable(fastjson.loads(one.ours.body)) == comparable(fastjson.loads(text)), one.request


@pytest.mark.parametrize("code", sorted(BY_STORE))
def test_responses_about_messages_agree_in_code_remark_and_fields(code: int) -> None:
    for one in of(RequestCode(code).name):
        assert one.expected is not None
        assert one.ours is not None
        theirs = (
            one.expected["code"],
            one.expected.get("remark"),
            (one.expected.get("extFields") or {}).keys(),
        )
        assert (one.ours.code, one.ours.remark, one.ours.ext.keys()) == theirs, one.request


def test_offsets_that_were_committed_are_found_again() -> None:
    compared = 0
    for one in of("QUERY_CONSUMER_OFFSET"):
        assert one.expected is not None
        assert one.ours is not None
        if one.ours.code == 22 and one.expected["code"] == 0:
            assert one.expected["extFields"] == {"offset": "0"}
            continue
        compared += 1
        assert (one.ours.code, one.ours.remark) == (one.expected["code"], one.expected.get("remark"))
        assert one.ours.ext == one.expected["extFields"], one.request
    assert compared > 20


def test_filters_are_refused_as_by_a_broker_without_them() -> None:
    """Apache's recorded broker had SQL filters on; ours has none, and responds as Apache does then."""
    for one in of("CHECK_CLIENT_CONFIG"):
        assert one.ours is not None
        remark = "The broker does not support consumer to filter message by SQL92"
        assert (one.ours.code, one.ours.remark) == (1, remark)


@pytest.mark.parametrize(
    ("name", "table", "total"),
    [
        ("GET_ALL_TOPIC_CONFIG", "topicConfigTable", "totalTopicNum"),
        ("GET_ALL_SUBSCRIPTIONGROUP_CONFIG", "subscriptionGroupTable", "totalGroupNum"),
    ],
)
def test_tables_agree_in_common_entries(name: str, table: str, total: str) -> None:
    for one in of(name):
        assert one.expected is not None
        assert one.ours is not None
        theirs, ours = fastjson.loads(one.expected["bodyText"]), fastjson.loads(one.ours.body)
        assert theirs.keys() == ours.keys()
        both = theirs[table].keys() & ours[table].keys()
        assert len(both) > 10
        assert {key: ours[table][key] for key in both} == {key: theirs[table][key] for key in both}
        assert one.ours.ext.keys() == one.expected["extFields"].keys() == {total}
