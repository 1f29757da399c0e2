"""Heartbeats, unregistrations, member lists: who belongs to a group, and who is notified of changes."""

import asyncio
import json

import pytest

from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.base.peer import Peer
from firearrow.broker.handlers import clients
from firearrow.broker.handlers.clients import LARGE_BYTES, STEP
from firearrow.broker.tables.topics import TopicConfig
from tests.support.handler_harness import HandlerHarness
from tests.support.peers import RecordedPeer

ALIVE = {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true"}


def subscription(topic: str, version: int = 1, **members: object) -> dict[str, object]:
    return {"topic": topic, "subString": "*", "subVersion": version, "tagsSet": [], "codeSet": []} | members


def consumer(group: str = "G", *topics: object, **members: object) -> dict[str, object]:
    subscriptions = [topic if isinstance(topic, dict) else subscription(str(topic)) for topic in topics]
    return {
        "groupName": group,
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "subscriptionDataSet": subscriptions,
        "unitMode": False,
    } | members


def beat(*consumers: object, client: str = "c1", producers: tuple[str, ...] = (), **members: object) -> bytes:
    body = {
        "clientID": client,
        "consumerDataSet": list(consumers),
        "producerDataSet": [{"groupName": name} for name in producers],
    }
    return json.dumps(body | members).encode()


def notices(peer: RecordedPeer) -> list[str]:
    assert all(request.code == 40 and request.is_oneway for request in peer.requests)
    return [request.ext["consumerGroup"] for request in peer.requests]


def alive(harness: HandlerHarness, body: bytes, peer: RecordedPeer, language: int = 0) -> dict[str, str]:
    answer = harness.ask(RequestCode.HEART_BEAT, body=body, peer=peer, language=language)
    assert (answer.code, answer.remark, answer.body) == (0, None, b"")
    return answer.ext


def test_a_heartbeat_makes_group_retry_topic_and_member() -> None:
    harness, peer = HandlerHarness(), RecordedPeer()
    assert alive(harness, beat(consumer("G", "T"), producers=("P",)), peer) == ALIVE
    assert "G" in harness.groups
    assert harness.topics.get("%RETRY%G") == TopicConfig("%RETRY%G", 1, 1)
    assert harness.ask(38, {"consumerGroup": "G"}).body == b'{"consumerIdList":["c1"]}'
    assert [member.client_id for member in harness.table.producers("P")] == ["c1"]
    online = harness.table.consumer_group("G")
    assert online is not None
    assert (online.consume_type, online.message_model) == ("CONSUME_PASSIVELY", "CLUSTERING")
    assert online.members[peer].to_object() == {
        "clientAddr": "127.0.0.1:40001",
        "clientId": "c1",
        "language": "JAVA",
        "version": 513,
    }


def test_the_notification_is_sent_before_the_response_and_only_for_changes() -> None:
    harness = HandlerHarness()
    sent: list[str] = []

    class Ordered(RecordedPeer):
        def reply(self, answer: RemotingCommand) -> None:
            sent.append("answer")
            super().reply(answer)

        def oneway(self, command: RemotingCommand) -> None:
            sent.append("notice")
            super().oneway(command)

    peer = Ordered()
    alive(harness, beat(consumer("G", "T")), peer)
    assert sent == ["notice", "answer"]
    alive(harness, beat(consumer("G", subscription("T", 2))), peer)
    assert sent == ["notice", "answer", "answer"]


def test_members_are_notified_of_changed_members_and_topics() -> None:
    harness, one, two = HandlerHarness(), RecordedPeer(), RecordedPeer()
    alive(harness, beat(consumer("G", "T")), one)
    alive(harness, beat(consumer("G", "T"), client="c2"), two)
    assert (notices(one), notices(two)) == (["G", "G"], ["G"])
    alive(harness, beat(consumer("G", "T", "U")), one)
    alive(harness, beat(consumer("G", "U")), one)
    assert len(notices(two)) == 3
    assert harness.ask(35, {"clientID": "c1", "consumerGroup": "G"}, peer=one).code == 0
    assert len(notices(two)) == 4
    two.close()
    assert harness.table.consumer_group("G") is None
    refused = harness.ask(38, {"consumerGroup": "G"})
    assert (refused.code, refused.remark, refused.body) == (1, "no consumer for this group, G", b"")


def test_a_closed_connection_leaves_all_its_groups() -> None:
    harness, one, two = HandlerHarness(), RecordedPeer(), RecordedPeer()
    alive(harness, beat(consumer("G", "T"), consumer("H", "T"), producers=("P",)), one)
    alive(harness, beat(consumer("G", "T"), client="c2"), two)
    two.requests.clear()
    one.close()
    assert notices(two) == ["G"]
    assert harness.table.producers("P") == []
    assert harness.table.consumer_group("H") is None


@pytest.mark.parametrize("why", ["broadcasting", "group", "broker"])
def test_no_notification_where_notifications_are_off(why: str) -> None:
    harness, peer = HandlerHarness(notify_consumers=why != "broker"), RecordedPeer()
    if why == "group":
        body = b'{"groupName":"G","notifyConsumerIdsChangedEnable":false}'
        assert harness.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body).code == 0
    model = "BROADCASTING" if why == "broadcasting" else "CLUSTERING"
    alive(harness, beat(consumer("G", "T", messageModel=model)), peer)
    assert notices(peer) == []


def test_a_subscription_is_replaced_by_a_newer_version_of_another_member_only() -> None:
    """A later heartbeat of its own member replaces it, whatever the clock of the client's host says."""
    harness, peer, other = HandlerHarness(), RecordedPeer(), RecordedPeer()

    def known() -> tuple[int, str]:
        found = harness.table.subscription("G", "T")
        assert found is not None
        return found.version, found.expression

    for sender, client, version, text, expected in (
        (peer, "c1", 5, "A", (5, "A")),
        (other, "c2", 4, "B", (5, "A")),
        (other, "c2", 5, "B", (5, "A")),
        (peer, "c1", 4, "C", (5, "C")),
        (other, "c2", 6, "D", (6, "D")),
        (peer, "c1", 5, "C", (6, "D")),
    ):
        body = beat(consumer("G", subscription("T", version, subString=text)), client=client)
        alive(harness, body, sender)
        assert known() == expected
    other.close()
    assert known() == (6, "C")


def test_a_fingerprint_stands_for_the_subscriptions() -> None:
    harness, peer = HandlerHarness(), RecordedPeer()
    first = alive(harness, beat(consumer("G", "T"), heartbeatFingerprint=11), peer)
    assert first == ALIVE | {"IS_SUB_CHANGE": "false"}
    again = alive(harness, beat(consumer("G"), heartbeatFingerprint=11, withoutSub=True), peer)
    assert again["IS_SUB_CHANGE"] == "false"
    assert harness.table.subscription("G", "T") is not None
    other = alive(harness, beat(consumer("G"), heartbeatFingerprint=-12, withoutSub=True), peer)
    assert other["IS_SUB_CHANGE"] == "true"
    assert harness.table.subscription("G", "T") is not None


def test_a_fingerprint_of_unknown_subscriptions_requests_them() -> None:
    harness, peer = HandlerHarness(), RecordedPeer()
    answer = alive(harness, beat(consumer("G"), heartbeatFingerprint=11, withoutSub=True), peer)
    assert answer["IS_SUB_CHANGE"] == "true"


def test_the_cpp_form_is_understood() -> None:
    body = (
        b'{"clientID":"cpp@1","consumerDataSet":[{"groupName":"G","consumeType":1,"messageModel":1,'
        b'"consumeFromWhere":4,"subscriptionDataSet":[{"topic":"T","subString":"A","subVersion":"1700000000001",'
        b'"tagsSet":["A"],"codeSet":[65]}]}]}\n'
    )
    harness, peer = HandlerHarness(), RecordedPeer()
    alive(harness, body, peer, language=1)
    online = harness.table.consumer_group("G")
    assert online is not None
    assert (online.consume_type, online.consume_from_where) == (
        "CONSUME_PASSIVELY",
        "CONSUME_FROM_FIRST_OFFSET",
    )
    assert (online.subscriptions["T"].version, online.subscriptions["T"].is_tag) == (1700000000001, True)
    assert online.members[peer].language_name == "CPP"


def test_the_go_form_is_understood() -> None:
    body = (
        b'{"clientID":"go@1","producerDataSet":null,"consumerDataSet":[{"groupName":"G","consumeType":"CONSUME_PASSIVELY",'
        b'"messageModel":"CLUSTERING","consumeFromWhere":"CONSUME_FROM_FIRST_OFFSET","subscriptionDataSet":'
        b'[{"classFilterMode":false,"topic":"T","subString":"A||B","tagsSet":["A","B"],"codeSet":["65","66"],'
        b'"subVersion":1700000000000000001,"expressionType":"TAG"},{"topic":"U","tagsSet":null,"codeSet":null}],'
        b'"unitMode":true}]}'
    )
    harness, peer = HandlerHarness(), RecordedPeer()
    alive(harness, body, peer, language=9)
    known = harness.table.subscription("G", "T")
    assert known is not None
    assert (known.codes, known.version) == (frozenset({65, 66}), 1700000000000000001)
    assert (retry := harness.topics.get("%RETRY%G"))
    assert retry.sys_flag == 2


def test_the_retry_topic_is_ordered_as_the_topics_are() -> None:
    harness, peer = HandlerHarness(), RecordedPeer()
    harness.topics.update(TopicConfig("T", order=True))
    alive(harness, beat(consumer("G", "T")), peer)
    assert (retry := harness.topics.get("%RETRY%G"))
    assert retry.order


def test_invalid_groups_are_skipped() -> None:
    harness, peer = HandlerHarness(), RecordedPeer()
    alive(harness, beat(consumer("not a name", "T"), consumer("G", "T")), peer)
    assert [group.name for group in harness.table.consumer_groups()] == ["G"]


def test_pulling_consumers_are_skipped_where_they_are_rejected() -> None:
    harness = HandlerHarness(reject_pull_consumers=True)
    alive(harness, beat(consumer("G", "T", consumeType="CONSUME_ACTIVELY")), RecordedPeer())
    assert harness.table.consumer_groups() == []


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b"", "JSON"),
        (b"[]", "heartbeat"),
        (b"{}", "clientID"),
        (b'{"clientID":5}', "clientID"),
        (beat(client="x" * 1025), "clientID"),
        (beat({"consumeType": 1}), "groupName"),
        (beat(consumer(consumeType="EAGERLY")), "consumeType"),
        (beat(consumer(messageModel=3)), "messageModel"),
        (beat(consumer("G", {"subString": "*"})), "topic"),
        (beat(consumer("G", subscription("T", subVersion="x"))), "subVersion"),
        (beat(consumer("G", subscription("T", codeSet=["x"]))), "codeSet"),
        (beat(consumer("G", subscription("T", tagsSet="A"))), "tagsSet"),
        (beat(subscriptionDataSet=1, producerDataSet={}), "producerDataSet"),
        (beat(heartbeatFingerprint=2**31), "heartbeatFingerprint"),
    ],
)
def test_a_wrong_heartbeat_is_refused_by_the_field(body: bytes, field: str) -> None:
    answer = HandlerHarness().ask(RequestCode.HEART_BEAT, body=body)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark is not None
    assert field in answer.remark


def test_a_large_heartbeat_lets_others_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "SLICE_S", 0)
    harness, peer = HandlerHarness(), RecordedPeer()
    count = 10_000
    request = RemotingCommand(34, {}, beat(consumer("G", *(f"T{n}" for n in range(count)))), opaque=1)
    turns = 0

    async def run() -> None:
        nonlocal turns
        harness.dispatch(request, peer)
        while not peer.replies:
            await asyncio.sleep(0)
            turns += 1

    asyncio.run(run())
    assert turns >= count // STEP
    online = harness.table.consumer_group("G")
    assert online is not None
    assert len(online.subscriptions) == count


def test_large_heartbeats_are_processed_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """So is their parsing, which is not sliced; a small one does not wait for them."""
    monkeypatch.setattr(clients, "SLICE_S", 0)
    harness, peers = HandlerHarness(), [RecordedPeer() for _ in range(3)]
    large = beat(consumer("G", *(f"T{n}" for n in range(1000))))
    assert len(large) > LARGE_BYTES
    most = 0

    async def run() -> None:
        nonlocal most
        for peer in peers:
            harness.dispatch(RemotingCommand(34, {}, large, opaque=1), peer)
        harness.dispatch(RemotingCommand(34, {}, beat(consumer("H", "T")), opaque=1), small)
        assert small.replies
        while not peers[-1].replies:
            await asyncio.sleep(0)
            online = harness.table.consumer_group("G")
            begun = 0 if online is None else sum(peer in online.members for peer in peers)
            most = max(most, begun - sum(bool(peer.replies) for peer in peers))

    small = RecordedPeer()
    asyncio.run(run())
    assert most == 1
    assert [len(peer.replies) for peer in peers] == [1, 1, 1]


def test_a_large_heartbeat_of_a_closed_connection_registers_nothing() -> None:
    harness, peer = HandlerHarness(), RecordedPeer()
    request = RemotingCommand(34, {}, beat(consumer("G", *(f"T{n}" for n in range(1000)))), opaque=1)

    async def run() -> None:
        harness.dispatch(request, peer)
        peer.close()
        await harness.dispatch.drain()

    asyncio.run(run())
    assert harness.table.consumer_group("G") is None
    assert peer.replies == []


def test_a_heartbeat_of_a_closed_connection_registers_nothing() -> None:
    harness, peer = HandlerHarness(), RecordedPeer()
    peer.close()
    harness.dispatch(RemotingCommand(34, {}, beat(consumer("G", "T"), producers=("P",))), peer)
    assert harness.table.consumer_group("G") is None
    assert harness.table.producers("P") == []


def test_silent_clients_are_closed_after_their_timeout() -> None:
    harness, one, two = HandlerHarness(), RecordedPeer(), RecordedPeer()
    alive(harness, beat(consumer("G", "T")), one)
    harness.clock.advance(60_000)
    alive(harness, beat(consumer("G", "T"), client="c2"), two)
    harness.clock.advance(60_000)
    harness.clients.sweep()
    assert not one.closed
    harness.clock.advance(1)
    harness.clients.sweep()
    assert one.closed
    assert not two.closed
    assert harness.ask(38, {"consumerGroup": "G"}).body == b'{"consumerIdList":["c2"]}'


def test_unregistering_removes_only_the_named_groups() -> None:
    harness, peer = HandlerHarness(), RecordedPeer()
    alive(harness, beat(consumer("G", "T"), producers=("P", "Q")), peer)
    answer = harness.ask(35, {"clientID": "c1", "producerGroup": "P", "consumerGroup": ""}, peer=peer)
    assert (answer.code, answer.ext) == (0, {})
    assert harness.table.producer_groups().keys() == {"Q"}
    assert harness.table.consumer_group("G") is not None
    assert harness.ask(35, {"clientID": "c1", "consumerGroup": "nobody"}, peer=peer).code == 0
    assert "nobody" not in harness.groups


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", 0),
        (b'{"clientId":"c","group":"G"}', 0),
        (b'{"subscriptionData":{"topic":"T","subString":"A"}}', 0),
        (b'{"subscriptionData":{"topic":"T","subString":"a > 1","expressionType":"SQL92"}}', 1),
        (b'{"subscriptionData":{"subString":"A"}}', 1),
        (b"{", 1),
    ],
)
def test_only_tags_may_filter(body: bytes, code: int) -> None:
    answer = HandlerHarness().ask(RequestCode.CHECK_CLIENT_CONFIG, body=body)
    assert answer.code == code
    if b"SQL92" in body:
        assert answer.remark == "The broker does not support consumer to filter message by SQL92"


# ---- a client that has connected again ----


def ids(harness: HandlerHarness, group: str = "G") -> object:
    return json.loads(harness.ask(38, {"consumerGroup": group}).body)["consumerIdList"]


def test_a_client_that_has_connected_again_is_one_member() -> None:
    """Its old connection died without a word; what it still sends, its unregistration and its close change nothing."""
    harness, before, after, other = HandlerHarness(), RecordedPeer(), RecordedPeer(), RecordedPeer()
    body = beat(consumer("G", "T"), producers=("P",))
    alive(harness, beat(consumer("G", "T"), client="c2"), other)
    for peer in (before, after, before):
        alive(harness, body, peer)
    assert ids(harness) == ["c2", "c1"]
    group = harness.table.consumer_group("G")
    assert group is not None
    assert [member.peer for member in group.members.values()] == [other, after]
    assert [member.peer for member in harness.table.producers("P")] == [after]
    assert harness.table.producer("c1") is after
    assert harness.table.memberships(before) == ([], [])
    harness.ask(35, {"clientID": "c1", "consumerGroup": "G", "producerGroup": "P"}, peer=before)
    for peer in (before, after, other):
        peer.requests.clear()
    before.close()
    assert ids(harness) == ["c2", "c1"]
    assert harness.table.producer("c1") is after
    alive(harness, beat(consumer("G", "T"), client="c3"), RecordedPeer())
    assert [len(notices(peer)) for peer in (before, after, other)] == [0, 1, 1]
    after.close()
    assert ids(harness) == ["c2", "c3"]
    assert harness.table.producers("P") == []
    assert harness.table.producer("c1") is None


def test_subscriptions_follow_their_client_to_its_new_connection() -> None:
    """A later heartbeat has the fingerprint only; the subscription leaves with the new connection, not before."""
    harness, before, after, other = HandlerHarness(), RecordedPeer(), RecordedPeer(), RecordedPeer()
    alive(harness, beat(consumer("G", subscription("T", subString="A")), heartbeatFingerprint=3), before)
    alive(harness, beat(consumer("G", subscription("T", subString="B")), client="c2"), other)
    known = beat(consumer("G"), heartbeatFingerprint=3, withoutSub=True)
    assert alive(harness, known, after)["IS_SUB_CHANGE"] == "false"
    before.close()

    def expression() -> str:
        found = harness.table.subscription("G", "T")
        assert found is not None
        return found.expression

    assert expression() == "A"
    after.close()
    assert expression() == "B"


def test_two_connections_that_both_work_do_not_take_turns(caplog: pytest.LogCaptureFixture) -> None:
    """Two processes with one instance name: the newer one counts until it is silent, as if it hangs."""
    harness, older, newer = HandlerHarness(), RecordedPeer(), RecordedPeer()
    body = beat(consumer("G", "T"), producers=("P",))

    def member() -> Peer:
        group = harness.table.consumer_group("G")
        assert group is not None
        [consumer_peer], [producer] = group.members, harness.table.producers("P")
        assert producer.peer is consumer_peer
        return consumer_peer

    for _ in range(3):
        for peer in (older, newer, older):
            alive(harness, body, peer)
        assert member() is newer
        harness.clock.advance(60_000)
        harness.clients.sweep()
    alive(harness, body, older)
    assert member() is newer
    harness.clock.advance(31_000)
    alive(harness, body, older)
    assert member() is older
    alive(harness, body, newer)
    assert member() is newer
    assert not newer.closed
    [warning] = [record.message for record in caplog.records if "two connections" in record.message][:1]
    assert "instance name" in warning
    newer.close()
    alive(harness, body, older)
    assert ids(harness) == ["c1"]


def test_another_user_does_not_take_a_member_s_place() -> None:
    harness, victim, enemy = HandlerHarness(), RecordedPeer(), RecordedPeer()
    for user, peer in (("app", victim), ("enemy", enemy)):
        request = RemotingCommand(34, {}, beat(consumer("G", "T"), producers=("P",)), opaque=7)
        request.user = user
        harness.hand(request, peer)
    assert ids(harness) == ["c1"]
    assert [member.peer for member in harness.table.producers("P")] == [victim, enemy]
    enemy.close()
    assert [member.peer for member in harness.table.producers("P")] == [victim]
