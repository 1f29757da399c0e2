"""400, 401 and 402: the broker assigns queues, and knows which groups pop."""

import json
from typing import Any

import pytest

from firearrow._native.protocol.message_queue import MessageQueue
from firearrow.broker.handlers.assignment import AssignmentHandler
from firearrow.broker.tables.request_modes import InvalidRequestMode, RequestMode, RequestModes
from tests.support.handler_harness import HandlerHarness
from tests.support.peers import RecordedPeer


class AssignmentHarness(HandlerHarness):
    """A harness whose topics have `queues` queues on each of two brokers."""

    def __init__(self, **options: Any) -> None:  # noqa: ANN401
        super().__init__(**options)
        self.modes = RequestModes()
        handler = AssignmentHandler(
            self.topics, self.groups, self.table, self.modes, self.config, self.queues
        )
        self.topics.create("T", 4)
        self.assign = handler
        self.serve(self.clients, handler)

    async def queues(self, topic: str) -> list[MessageQueue] | None:
        if topic not in self.topics:
            return None
        return [MessageQueue(topic, name, number) for name in ("a", "b") for number in range(4)]

    def join(self, client: str, group: str = "G", model: str = "CLUSTERING") -> None:
        consumer = {
            "groupName": group,
            "consumeType": "CONSUME_PASSIVELY",
            "messageModel": model,
            "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
            "unitMode": False,
            "subscriptionDataSet": [{"topic": "T", "subString": "*", "subVersion": 1}],
        }
        body = {"clientID": client, "consumerDataSet": [consumer], "producerDataSet": []}
        peer = RecordedPeer(("127.0.0.1", 40_000 + len(self.groups_of_clients())))
        self.ask(34, body=json.dumps(body).encode(), peer=peer)

    def groups_of_clients(self) -> list[str]:
        online = self.table.consumer_group("G")
        return [] if online is None else online.client_ids()

    def assigned(self, client: str, topic: str = "T", **more: object) -> tuple[set[str], list[str]] | None:
        """Modes and `broker queue` of the response; None if it has no list."""
        question = {
            "topic": topic,
            "consumerGroup": "G",
            "clientId": client,
            "strategyName": "AVG",
            "messageModel": "CLUSTERING",
        }
        answer = self.ask(400, body=json.dumps(question | more).encode())
        assert (answer.code, answer.remark) == (0, None)
        found = json.loads(answer.body).get("messageQueueAssignments")
        if found is None:
            return None
        names = [f"{one['messageQueue']['brokerName']}{one['messageQueue']['queueId']}" for one in found]
        return {one["mode"] for one in found}, names

    def set_mode(self, **more: object) -> Any:  # noqa: ANN401
        body = {"topic": "T", "consumerGroup": "G", "mode": "POP", "popShareQueueNum": 0}
        return self.ask(401, body=json.dumps(body | more).encode())


def test_members_share_the_queues_of_all_brokers() -> None:
    harness = AssignmentHarness()
    harness.join("c1")
    harness.join("c2")
    assert harness.assigned("c1") == ({"PULL"}, ["a0", "a1", "a2", "a3"])
    assert harness.assigned("c2") == ({"PULL"}, ["b0", "b1", "b2", "b3"])
    assert harness.assigned("c2", strategyName="AVG_BY_CIRCLE") == ({"PULL"}, ["a1", "a3", "b1", "b3"])
    assert harness.assigned("stranger") == (set(), [])


def test_requests_without_an_assignment() -> None:
    """An unknown topic, a group without members, an unknown strategy, no client id."""
    harness = AssignmentHarness()
    assert harness.assigned("c1") is None
    harness.join("c1")
    assert harness.assigned("c1", topic="other") is None
    assert harness.assigned("c1", strategyName="CONSISTENT_HASH") is None
    assert harness.assigned("c1", clientId=" ") is None


def test_a_broadcasting_client_has_all_queues() -> None:
    found = AssignmentHarness().assigned("c1", messageModel="BROADCASTING")
    assert found is not None
    assert len(found[1]) == 8


def test_without_load_balancing_each_client_has_all_queues() -> None:
    harness = AssignmentHarness(server_assigns=False)
    harness.join("c1")
    harness.join("c2")
    assert harness.assigned("c1") == harness.assigned("c2")


def test_a_group_that_pops() -> None:
    harness = AssignmentHarness()
    harness.join("c1")
    assert harness.set_mode().code == 0
    assert harness.assigned("c1") == ({"POP"}, ["a-1", "b-1"])
    assert harness.assigned("c1", topic="%RETRY%G") == (
        {"PULL"},
        ["a0", "a1", "a2", "a3", "b0", "b1", "b2", "b3"],
    )
    answer = harness.ask(402)
    assert json.loads(answer.body) == {
        "messageRequestModeMap": {
            "T": {"G": {"consumerGroup": "G", "mode": "POP", "popShareQueueNum": 0, "topic": "T"}}
        }
    }
    assert harness.set_mode(mode="PULL").code == 0
    assert harness.assigned("c1", strategyName="AVG") == harness.assigned("c1")
    assert harness.assigned("c1", messageModel="CLUSTERING")[0] == {"PULL"}  # type: ignore[index]


def test_pop_may_be_the_default() -> None:
    harness = AssignmentHarness(default_request_mode="POP")
    harness.join("c1")
    assert harness.assigned("c1") == ({"POP"}, ["a-1", "b-1"])
    assert harness.assigned("c1", topic="%RETRY%G")[0] == {"PULL"}  # type: ignore[index]


def test_an_lmq_is_on_this_broker_only() -> None:
    harness = AssignmentHarness()
    harness.join("c1")
    assert harness.assigned("c1", topic="%LMQ%one") == ({"PULL"}, ["broker-a0"])


def test_invalid_modes_are_refused() -> None:
    harness = AssignmentHarness()
    retry = harness.set_mode(topic="%RETRY%G")
    assert (retry.code, retry.remark) == (16, "retry topic is not allowed to set mode")
    missing = harness.set_mode(topic="other")
    assert (missing.code, missing.remark) == (17, "topic[other] not exist")
    group = harness.set_mode(consumerGroup="no such")
    assert (group.code, group.remark) == (26, "subscription group does not exist")
    assert harness.modes.to_object() == {"messageRequestModeMap": {}}


@pytest.mark.parametrize(
    ("code", "body", "field"),
    [
        (400, b"", "JSON"),
        (400, b"[]", "body"),
        (400, b'{"consumerGroup":"G"}', "topic"),
        (400, b'{"topic":"T"}', "consumerGroup"),
        (400, b'{"topic":"T","consumerGroup":"G","messageModel":"X"}', "messageModel"),
        (401, b'{"topic":"T","consumerGroup":"G","mode":"PUSH"}', "mode"),
        (401, b'{"topic":"T","consumerGroup":"G","popShareQueueNum":99999999999}', "popShareQueueNum"),
        (401, b"{" + b" " * (1 << 16) + b"}", "JSON"),
    ],
)
def test_wrong_bodies_are_refused_by_the_field(code: int, body: bytes, field: str) -> None:
    answer = AssignmentHarness().ask(code, body=body)
    assert answer.code == 1
    assert field in str(answer.remark)


def test_the_file_has_apaches_format() -> None:
    """As the recorded broker wrote it (in its golden store)."""
    text = (
        b'{\n\t"messageRequestModeMap":{\n\t\t"GoldenPop":{\n\t\t\t"CG_POP":{\n\t\t\t\t"consumerGroup":"CG_POP",\n'
        b'\t\t\t\t"mode":"POP",\n\t\t\t\t"popShareQueueNum":0,\n\t\t\t\t"topic":"GoldenPop"\n\t\t\t}\n\t\t}\n\t}\n}'
    )
    modes = RequestModes()
    modes.load(text)
    assert modes.get("GoldenPop", "CG_POP") == RequestMode("GoldenPop", "CG_POP", "POP", 0)
    assert modes.to_json() == text


def test_modes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("firearrow.broker.tables.request_modes.MODES_MAX", 2)
    modes = RequestModes()
    for group in ("one", "two", "two"):
        modes.set(RequestMode("T", group, "POP", 0))
    with pytest.raises(InvalidRequestMode, match="at most 2"):
        modes.set(RequestMode("T", "three", "POP", 0))
