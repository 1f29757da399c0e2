"""Every frame recorded between clients, brokers and Apache's name server, replayed in the recorded order."""

from typing import Any

import pytest

from firearrow._native.protocol import fastjson
from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from tests.golden import Recorded, session, sessions
from tests.support.name_server_harness import NameServerHarness
from tests.support.peers import RecordedPeer

UNORDERED = ("topicList",)
OPTIONS_OF_THE_RIG = {
    "configStorePath": "/golden/broker/conf/namesrv.conf",
    "kvConfigPath": "/golden/broker/namesrv/kvConfig.json",
    "listenPort": "19876",
    "rocketmqHome": "/golden/broker",
}


def naming_frames() -> list[tuple[str, Recorded]]:
    """Of all sessions, ordered by time; `acl` had a separate name server and broker."""
    frames = [
        (name, recorded)
        for name in sessions()
        if not name.startswith("acl")
        for recorded in session(name)
        if recorded.line["peer"] == "namesrv"
    ]
    return sorted(frames, key=lambda frame: frame[1].line["ts"])


def sorted_lists(body: bytes) -> Any:  # noqa: ANN401
    """The body with the lists sorted whose order is that of a Java hash map."""
    parsed = fastjson.loads(body)
    for member in UNORDERED:
        if member in parsed:
            parsed[member] = sorted(parsed[member])
    return parsed


def same(ours: RemotingCommand, apache: RemotingCommand, where: str) -> None:
    assert ours.code == apache.code, where
    assert ours.remark == apache.remark, where
    assert ours.ext == apache.ext, where
    if ours.body != apache.body:
        assert sorted_lists(ours.body) == sorted_lists(apache.body), where
        assert len(ours.body) == len(apache.body), where


def test_every_recorded_response_is_reproduced() -> None:
    harness = NameServerHarness(OPTIONS_OF_THE_RIG)
    peers: dict[tuple[str, int], RecordedPeer] = {}
    waiting: dict[tuple[str, int, int], RemotingCommand] = {}
    replayed = 0
    for name, recorded in naming_frames():
        line = recorded.line
        raw = recorded.raw
        key = (name, line["conn"], line["opaque"])
        if raw is None:
            pytest.fail(f"{name}: a frame was cut")
        command = RemotingCommand.decode(raw)
        if line["dir"] == "c2s":
            peer = peers.setdefault(key[:2], RecordedPeer(local=("127.0.0.2", 19876)))
            waiting[key] = harness.ask(command, peer)
            continue
        ours = waiting.pop(key)
        same(ours, command, f"{name}: answer to {line['answers']}, opaque {line['opaque']}, ours {ours}")
        replayed += 1
    assert replayed > 900


def test_the_recording_contains_all_of_these() -> None:
    asked = {recorded.line["code"] for _, recorded in naming_frames() if recorded.line["dir"] == "c2s"}
    assert asked >= {
        RequestCode.REGISTER_BROKER,
        RequestCode.UNREGISTER_BROKER,
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
        RequestCode.GET_BROKER_CLUSTER_INFO,
        RequestCode.WIPE_WRITE_PERM_OF_BROKER,
        RequestCode.ADD_WRITE_PERM_OF_BROKER,
        RequestCode.GET_NAMESRV_CONFIG,
    }
