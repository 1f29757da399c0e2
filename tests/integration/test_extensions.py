"""Requests that only FireArrow answers: what waits, who holds locks, lag, refusals and connections."""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from firearrow._native.wire.codes import RequestCode, ResponseCode
from tests.integration.pops import QUICK, ack_ext, bodies, pop, records
from tests.support.broker_process import BrokerProcess
from tests.support.client_socket import ClientSocket
from tests.support.eventually import eventually
from tests.support.requests import pull, send, send_ext


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("extensions") / "store", *QUICK) as running:
        yield running
        assert running.stop() == 0
        assert "Traceback" not in running.log.read_text()


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[ClientSocket]:
    with broker.connect() as connection:
        yield connection


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def ask(client: ClientSocket, code: int, **fields: object) -> dict[str, Any]:
    answer = client.ask(code, {name: str(value) for name, value in fields.items()})
    assert answer.code == 0, answer.remark
    found: dict[str, Any] = json.loads(answer.body)
    return found


def put(client: ClientSocket, topic: str, **properties: str) -> None:
    text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items())
    assert client.ask(RequestCode.SEND_MESSAGE_V2, send_ext(topic, 1, i=text), b"body").code == 0


def heartbeat(client: ClientSocket, client_id: str, group: str, topic: str, producer: str = "P") -> None:
    member = {
        "groupName": group,
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
        "subscriptionDataSet": [{"topic": topic, "subString": "*", "subVersion": 1}],
    }
    body = {
        "clientID": client_id,
        "consumerDataSet": [member],
        "producerDataSet": [{"groupName": producer}],
    }
    assert client.ask(RequestCode.HEART_BEAT, {}, json.dumps(body).encode()).code == 0


def test_pending_timers_and_delays_in_order(client: ClientSocket) -> None:
    began = now_ms()
    for number, seconds in enumerate((900, 300, 600, 300)):
        at = str(began + seconds * 1000)
        put(client, "Timed", TIMER_DELIVER_MS=at, UNIQ_KEY=f"U{number}", KEYS="k", TAGS="t")
    put(client, "Timed", DELAY="14", UNIQ_KEY="D")  # 10 minutes
    put(client, "OtherTimed", TIMER_DELIVER_MS=str(began + 400_000), UNIQ_KEY="O")
    eventually(lambda: len(ask(client, RequestCode.LIST_PENDING_TIMERS)["messages"]) >= 6)
    body = ask(client, RequestCode.LIST_PENDING_TIMERS, topic="Timed")
    found = body["messages"]
    assert not body["more"]
    assert [each["dueMs"] for each in found] == sorted(each["dueMs"] for each in found)
    assert [each["msgId"] for each in found if each["kind"] == "timer"] in (
        ["U1", "U3", "U2", "U0"], ["U3", "U1", "U2", "U0"],
    )  # fmt: skip
    [delayed] = [each for each in found if each["kind"] == "delay"]
    assert (delayed["msgId"], delayed["topic"], delayed["queueId"]) == ("D", "Timed", 1)
    assert abs(delayed["dueMs"] - delayed["storedMs"] - 600_000) < 1000
    first = found[0]
    assert 0 <= first["dueMs"] - (began + 300_000) <= 1000
    assert (first["keys"], first["tags"], first["bytes"], first["queueId"]) == ("k", "t", 4, 1)
    assert began <= first["storedMs"] <= now_ms()
    later = ask(client, RequestCode.LIST_PENDING_TIMERS, **{"topic": "Timed", "from": began + 700_000})
    assert [each["msgId"] for each in later["messages"]] == ["U0"]
    between = ask(client, RequestCode.LIST_PENDING_TIMERS, **{"from": began + 350_000, "to": began + 450_000})
    assert [each["msgId"] for each in between["messages"]] == ["O"]
    two = ask(client, RequestCode.LIST_PENDING_TIMERS, topic="Timed", limit=2)
    assert (two["messages"], two["more"]) == (found[:2], True)
    ext = {"topic": "Timed", "recallHandle": first["recallHandle"], "producerGroup": "P"}
    recalled = client.ask(RequestCode.RECALL_MESSAGE, ext)
    assert recalled.code in (0, ResponseCode.NO_PERMISSION)


def test_many_pending_timers_are_read_in_bounded_steps(client: ClientSocket, broker: BrokerProcess) -> None:
    at = now_ms() + 3_600_000
    opaques = []
    for number in range(3000):
        text = f"TIMER_DELIVER_MS\x01{at + number * 1000}\x02UNIQ_KEY\x01M{number}\x02"
        opaques.append(client.send_request(RequestCode.SEND_MESSAGE_V2, send_ext("Many", i=text), b"x"))
    for opaque in opaques:
        assert client.answer_to(opaque).code == 0
    listed = {"from": at - 1000, "topic": "Many"}
    eventually(lambda: len(ask(client, RequestCode.LIST_PENDING_TIMERS, **listed)["messages"]) == 1000)
    body = ask(client, RequestCode.LIST_PENDING_TIMERS, **listed)
    assert [each["msgId"] for each in body["messages"]] == [f"M{n}" for n in range(1000)]
    assert body["more"]
    following = ask(client, RequestCode.LIST_PENDING_TIMERS, **(listed | {"from": at + 2_500_000}))
    assert len(following["messages"]) in (499, 500, 501)


def test_open_half_messages(client: ClientSocket) -> None:
    for group, number in (("PA", 1), ("PB", 2), ("PA", 3)):
        put(client, "Paid", TRAN_MSG="true", PGROUP=group, UNIQ_KEY=f"H{number}", KEYS="order")
    found = ask(client, RequestCode.LIST_HALF_MESSAGES)["messages"]
    assert [each["msgId"] for each in found] == ["H1", "H2", "H3"]
    assert [each["group"] for each in found] == ["PA", "PB", "PA"]
    first = found[0]
    assert (first["topic"], first["transactionId"], first["checks"]) == ("Paid", "H1", 0)
    assert (first["keys"], len(first["offsetMsgId"])) == ("order", 32)
    assert first["bornHost"].startswith("127.0.0.1:")
    assert first["nextCheckMs"] > first["bornMs"]
    only = ask(client, RequestCode.LIST_HALF_MESSAGES, group="PA", limit=1)
    assert ([each["msgId"] for each in only["messages"]], only["more"]) == (["H1"], True)
    ext = {
        "producerGroup": "PA",
        "tranStateTableOffset": "0",
        "commitLogOffset": str(int(first["offsetMsgId"][16:], 16)),
        "commitOrRollback": "8",
        "fromTransactionCheck": "false",
        "msgId": "H1",
        "transactionId": "H1",
    }
    assert client.ask(RequestCode.END_TRANSACTION, ext).code == 0
    left = ask(client, RequestCode.LIST_HALF_MESSAGES)["messages"]
    assert [each["msgId"] for each in left] == ["H2", "H3"]


def test_locks_of_queues(client: ClientSocket, broker: BrokerProcess) -> None:
    for number in range(3):
        put(client, "Ordered", UNIQ_KEY=f"L{number}")
    queues = [{"brokerName": "b", "queueId": 1, "topic": "Ordered"}]
    with broker.connect() as member:
        heartbeat(member, "here", "Orders", "Ordered")
        began = now_ms()
        for group, who in (("Orders", "here"), ("Gone", "away")):
            body = {"consumerGroup": group, "clientId": who, "mqSet": queues}
            assert client.ask(RequestCode.LOCK_BATCH_MQ, {}, json.dumps(body).encode()).code == 0
        ext = {"consumerGroup": "Orders", "topic": "Ordered", "queueId": "1", "commitOffset": "1"}
        assert client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, ext).code == 0
        [lock] = ask(client, RequestCode.LIST_QUEUE_LOCKS, group="Orders")["locks"]
        assert (lock["clientId"], lock["connected"], lock["queueId"]) == ("here", True, 1)
        assert (lock["committed"], lock["headOffset"], lock["headMsgId"]) == (1, 1, "L1")
        assert began - 1000 <= lock["lockedMs"] <= lock["lastRenewedMs"] <= now_ms() + 1000
        assert 0 <= lock["headAgeMs"] < 60_000
        both = ask(client, RequestCode.LIST_QUEUE_LOCKS)["locks"]
        assert {each["group"]: each["connected"] for each in both} == {"Orders": True, "Gone": False}
        [away] = [each for each in both if each["group"] == "Gone"]
        assert (away["committed"], away["headOffset"]) == (-1, 0)


def test_popped_messages_in_flight(client: ClientSocket) -> None:
    for number in range(6):
        send(client, "Popped", b"%d" % number, queue_id=1)
    began = now_ms()
    popped = pop(client, "Popped", queueId="1", invisibleTime="60000", consumerGroup="Poppers")
    assert len(bodies(popped)) == 6
    listed = {"group": "Poppers", "topic": "Popped"}
    eventually(lambda: len(ask(client, RequestCode.LIST_POP_IN_FLIGHT, **listed)["messages"]) == 6)
    body = ask(client, RequestCode.LIST_POP_IN_FLIGHT, **listed)
    assert [each["offset"] for each in body["messages"]] == list(range(6))
    first = body["messages"][0]
    assert (first["topic"], first["queueId"], first["reconsumeTimes"]) == ("Popped", 1, 0)
    assert began - 1000 <= first["poppedMs"] <= now_ms()
    assert first["invisibleUntilMs"] == first["poppedMs"] + 60_000
    assert not body["more"]
    ext = ack_ext(popped, records(popped)[2]) | {"consumerGroup": "Poppers"}
    assert client.ask(RequestCode.ACK_MESSAGE, ext).code == 0
    eventually(lambda: len(ask(client, RequestCode.LIST_POP_IN_FLIGHT, **listed)["messages"]) == 5)
    left = ask(client, RequestCode.LIST_POP_IN_FLIGHT, group="Poppers", limit=3)
    assert ([each["offset"] for each in left["messages"]], left["more"]) == ([0, 1, 3], True)
    assert ask(client, RequestCode.LIST_POP_IN_FLIGHT, group="Others")["messages"] == []
    assert ask(client, RequestCode.LIST_POP_IN_FLIGHT, group="Poppers", topic="T")["messages"] == []


def test_lag_in_messages_and_time(client: ClientSocket) -> None:
    for _ in range(4):
        send(client, "Lagging", b"x", 1)
    time.sleep(0.1)
    assert pull(client, "Lagging", 0, 1, consumerGroup="Slow").code == 0  # creates the group
    ext = {"consumerGroup": "Slow", "topic": "Lagging", "queueId": "1", "commitOffset": "3"}
    assert client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, ext).code == 0
    ext["queueId"] = "0"
    ext["commitOffset"] = "0"
    assert client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, ext).code == 0
    queues = ask(client, RequestCode.GET_LAG, group="Slow", topic="Lagging")["queues"]
    assert [each["queueId"] for each in queues] == [0, 1, 2, 3]
    one = queues[1]
    assert (one["committed"], one["minOffset"], one["maxOffset"], one["lag"]) == (3, 0, 4, 1)
    assert 100 <= one["lagMs"] < 60_000
    assert abs(now_ms() - one["lagMs"] - one["nextStoredMs"]) < 5000
    assert (queues[0]["lag"], queues[0]["lagMs"], queues[0]["nextStoredMs"]) == (0, 0, 0)
    everything = ask(client, RequestCode.GET_LAG)["queues"]
    assert [each for each in everything if each["group"] == "Slow"][1]["lag"] == 1
    of_topic = ask(client, RequestCode.GET_LAG, topic="Lagging")["queues"]
    assert {each["topic"] for each in of_topic} == {"Lagging"}


def test_refusals_are_counted_together(client: ClientSocket) -> None:
    for _ in range(3):
        assert client.ask(RequestCode.TRIM_TOPIC, {"topic": "Nowhere", "offset": "1"}).code == 17
    assert client.ask(4711, {"topic": "T"}).code == 3
    assert pull(client, "Nowhere").code == 17
    mine = "{}:{}".format(*client.socket.getsockname())
    body = ask(client, RequestCode.LIST_REFUSALS)
    found = [each for each in body["refusals"] if each["address"] == mine]
    assert [(each["reason"], each["count"], each["code"]) for each in found] == [
        ("TOPIC_NOT_EXIST", 4, 11),
        ("REQUEST_CODE_NOT_SUPPORTED", 1, 4711),
    ]
    assert (found[0]["topic"], found[0]["group"], found[0]["responseCode"]) == ("Nowhere", "CG", 17)
    assert body["byReason"]["TOPIC_NOT_EXIST"] >= 4
    assert abs(now_ms() - found[0]["atMs"]) < 60_000


def test_connections_are_listed_and_closed(client: ClientSocket, broker: BrokerProcess) -> None:
    with broker.connect() as first, broker.connect() as second, broker.connect() as silent:
        heartbeat(first, "one", "GA", "T", "PA")
        heartbeat(second, "two", "GA", "T", "PB")
        silent.ask(RequestCode.GET_MAX_OFFSET, {"topic": "T", "queueId": "0"})
        names = {name: "{}:{}".format(*c.socket.getsockname()) for name, c in
                 (("one", first), ("two", second), ("", silent))}  # fmt: skip
        listed = ask(client, RequestCode.LIST_CONNECTIONS)["connections"]
        found = {each["address"]: each for each in listed}
        for client_id, address in names.items():
            assert found[address]["clientId"] == client_id
            assert 0 <= now_ms() - found[address]["sinceMs"] < 60_000
            assert found[address]["lastRequestMs"] >= found[address]["sinceMs"] - 1000
        one = found[names["one"]]
        assert (one["groups"], one["producerGroups"], one["protocol"]) == (["GA"], ["PA"], "remoting")
        assert one["language"] == "PYTHON"
        assert ask(client, RequestCode.CLOSE_CONNECTION, clientId="two") == {"closed": 1}
        assert second.closed_by_peer()
        assert ask(client, RequestCode.CLOSE_CONNECTION, address=names[""]) == {"closed": 1}
        assert silent.closed_by_peer()
        mine = "{}:{}".format(*client.socket.getsockname())
        assert ask(client, RequestCode.CLOSE_CONNECTION, address=mine) == {"closed": 0}
        assert first.ask(RequestCode.GET_MAX_OFFSET, {"topic": "T", "queueId": "0"}).code == 0
        assert ask(client, RequestCode.CLOSE_CONNECTION, clientId="nobody") == {"closed": 0}


REFUSED = {
    "limit 0": (RequestCode.LIST_PENDING_TIMERS, {"limit": "0"}),
    "a huge limit": (RequestCode.LIST_HALF_MESSAGES, {"limit": "1001"}),
    "a negative limit": (RequestCode.LIST_POP_IN_FLIGHT, {"group": "G", "limit": "-1"}),
    "a negative time": (RequestCode.LIST_PENDING_TIMERS, {"from": "-1"}),
    "times in the wrong order": (RequestCode.LIST_PENDING_TIMERS, {"from": "2", "to": "1"}),
    "neither": (RequestCode.CLOSE_CONNECTION, {}),
    "both": (RequestCode.CLOSE_CONNECTION, {"address": "127.0.0.1:1", "clientId": "c"}),
}


@pytest.mark.parametrize("name", REFUSED)
def test_invalid_values_are_refused(client: ClientSocket, name: str) -> None:
    code, ext = REFUSED[name]
    answer = client.ask(code, ext)
    assert (answer.code, bool(answer.remark)) == (ResponseCode.INVALID_PARAMETER, True)


@pytest.mark.parametrize("value", [str(2**63 - 1), "0"])
def test_extreme_times(client: ClientSocket, value: str) -> None:
    ask(client, RequestCode.LIST_PENDING_TIMERS, **{"from": value})
    ask(client, RequestCode.LIST_PENDING_TIMERS, to=value)
