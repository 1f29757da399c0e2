"""Records and properties that a user makes up: they give nothing of the topics on which it has no right.

What concerns the messages of others holds without users, too.
"""

import base64
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from bench.ports import free_port
from firearrow._native.store.message_store import MessageStore, StoreConfig
from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.base.message_ids import offset_of
from tests.auth.secured import SignedSocket, ask_ok, create_user, grant, secured
from tests.integration.test_replies import answer_push, register
from tests.integration.test_transactions import (
    COMMIT,
    ROLLBACK,
    await_check,
    end_ext,
    half_ext,
    half_of,
    join,
)
from tests.support.broker_process import BrokerProcess
from tests.support.client_socket import ClientSocket
from tests.support.requests import pull_ext, records, send_ext, topic_ext
from tests.support.stores import item, put
from tests.unit.store.test_made_up_records import BODY_AT, made_up

LMQS = ("enableLmq=true", "enableMultiDispatch=true")
HALF, DISCARDED = "RMQ_SYS_TRANS_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC"
REPLIES = "DefaultCluster_REPLY_TOPIC"
PASSWORD = "secret88"
REPLY_CODES = (RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2)
LONG_NAMES = {
    "a": "producerGroup",
    "b": "topic",
    "c": "defaultTopic",
    "d": "defaultTopicQueueNums",
    "e": "queueId",
    "f": "sysFlag",
    "g": "bornTimestamp",
    "h": "flag",
    "i": "properties",
    "j": "reconsumeTimes",
    "k": "unitMode",
    "m": "batch",
}


class Scene:
    """`app` may send to and read from `mine`, `owner` the same with `secret`. Without users nobody logs in."""

    def __init__(self, broker: BrokerProcess, users: bool) -> None:
        self.broker, self.users = broker, users
        self.connections: list[ClientSocket] = []
        root = self.connection("rocketmq", "12345678")
        for topic in ("mine", "secret"):
            ask_ok(root, RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext(topic, 1))
        if users:
            for name, topic, group in (("app", "mine", "G"), ("owner", "secret", "OWN")):
                create_user(root, name, PASSWORD)
                grant(root, name, f"Topic:{topic}", "Pub", "Sub")
                grant(root, name, f"Topic:{REPLIES}", "Pub")
                grant(root, name, f"Group:{group}", "Sub")
        self.root, self.app, self.owner = root, self.connection("app"), self.connection("owner")

    def connection(self, user: str, password: str = PASSWORD) -> ClientSocket:
        self.connections.append(SignedSocket(self.broker.address, user if self.users else "", password))
        return self.connections[-1]

    def close(self) -> None:
        for connection in self.connections:
            connection.close()

    def place(self) -> int:
        """Where the body of app's next message will be: the id of its last one says where the log ends."""
        sent = send(self.app, "mine", b"where are we?")
        at = offset_of(sent.ext["msgId"])
        return at + len(ask_ok(self.app, RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(at)}).body) + BODY_AT


@contextmanager
def scene_of(store: Path, users: bool, *options: str) -> Iterator[Scene]:
    more = [word for pair in options for word in ("--set", pair)]
    with secured(store, *options) if users else BrokerProcess(store, *more) as broker:
        scene = Scene(broker, users)
        try:
            yield scene
        finally:
            scene.close()


@pytest.fixture(params=[True, False], ids=["users", "open"])
def scene(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Scene]:
    with scene_of(tmp_path / "store", request.param, *LMQS) as scene:
        yield scene


def text(**properties: str) -> str:
    return "".join(f"{name}\x01{value}\x02" for name, value in properties.items())


def send(
    connection: ClientSocket, topic: str, body: bytes, code: int = 310, **properties: str
) -> RemotingCommand:
    ext = send_ext(topic, i=text(**properties))
    if code in (RequestCode.SEND_MESSAGE, RequestCode.SEND_REPLY_MESSAGE):
        ext = {LONG_NAMES[name]: value for name, value in ext.items()}
    return connection.ask(code, ext, body)


def test_no_request_takes_a_made_up_record(scene: Scene) -> None:
    secret = send(scene.owner, "secret", b"a secret")
    half = half_of(
        scene.owner.ask(RequestCode.SEND_MESSAGE_V2, half_ext("secret", "K") | {"e": "0"}, b"paid")
    )
    facts = text(REAL_TOPIC="mine", REAL_QID="0", PGROUP="PG", TRAN_MSG="true").encode()
    places = (
        (HALF, int(half.queue_offset)),
        (DISCARDED, 0),
        ("mine", 0),
        ("secret", int(secret.ext["queueOffset"])),
    )
    for topic, queue_offset in places:
        at = scene.place()
        assert send(scene.app, "mine", made_up(at, topic, queue_offset, properties=facts)).code == 0
        message_id = f"7F00000100002A9F{at:016X}"
        doors: list[tuple[int, dict[str, str]]] = [
            (RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(at)}),
            (RequestCode.CONSUMER_SEND_MSG_BACK, {"group": "G", "offset": str(at), "delayLevel": "1"}),
            (RequestCode.END_TRANSACTION, end_ext(half._replace(physical_offset=str(at)), ROLLBACK)),
            (RequestCode.END_TRANSACTION, end_ext(half._replace(physical_offset=str(at)), COMMIT)),
            (RequestCode.RESUME_CHECK_HALF_MESSAGE, {"msgId": message_id}),
            (
                RequestCode.CONSUME_MESSAGE_DIRECTLY,
                {"consumerGroup": "G", "clientId": "c", "msgId": message_id},
            ),
        ]
        for code, ext in doors:
            answer = scene.app.ask(code, ext)
            assert answer.code == ResponseCode.SYSTEM_ERROR, (topic, code, answer.remark)
            assert "not online" not in f"{answer.remark}"
    assert ask_ok(scene.owner, RequestCode.END_TRANSACTION, end_ext(half, COMMIT)).code == 0
    ext = pull_ext("secret", 0, consumerGroup="OWN")
    assert [found.body for found in records(scene.owner.ask(RequestCode.PULL_MESSAGE, ext).body)] == [
        b"a secret",
        b"paid",
    ]


def test_a_send_back_names_the_topic_that_the_message_was_in(scene: Scene) -> None:
    """What a sender writes into RETRY_TOPIC is not where an operator sends a dead letter again."""
    sent = send(scene.app, "mine", b"m", RETRY_TOPIC="secret")
    back = {"group": "G", "offset": str(offset_of(sent.ext["msgId"])), "delayLevel": "-1"}
    ask_ok(scene.app, RequestCode.CONSUMER_SEND_MSG_BACK, back)
    body = ask_ok(scene.root, RequestCode.PULL_MESSAGE, pull_ext("%DLQ%G", 0)).body
    assert b"RETRY_TOPIC\x01mine\x02" in body
    assert b"RETRY_TOPIC\x01secret" not in body


def test_no_batch_is_a_dead_letter(scene: Scene) -> None:
    """Its items could name the topic to which an operator sends them again."""
    ask_ok(scene.root, RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext("%DLQ%G", 1))
    if scene.users:
        grant(scene.root, "app", "Topic:%DLQ%G", "Pub")
    body = item(b"x", text(RETRY_TOPIC="secret").encode())
    for code in (RequestCode.SEND_BATCH_MESSAGE, RequestCode.SEND_MESSAGE_V2):
        answer = scene.app.ask(code, send_ext("%DLQ%G", m="true"), body)
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL, answer.remark


@pytest.mark.parametrize("code", [RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_REPLY_MESSAGE_V2])
def test_no_retry_names_a_topic_past_its_right(tmp_path: Path, code: int) -> None:
    with scene_of(tmp_path / "store", False) as scene:
        ask_ok(scene.root, RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext("%DLQ%G", 1))
        send(scene.app, "%DLQ%G", b"x", code, DLQ_ORIGIN_TOPIC="secret", REAL_TOPIC="secret", REAL_QID="0")
        stored = ask_ok(scene.root, RequestCode.PULL_MESSAGE, pull_ext("%DLQ%G", 0)).body
        assert b"secret" not in stored


def test_offsets_in_lmqs_are_never_the_senders(tmp_path: Path) -> None:
    """Nor while LMQs are off: a rebuild after they were switched on would put the message into the queue."""
    with scene_of(tmp_path / "store", False) as scene:
        properties = text(INNER_MULTI_DISPATCH="secret", INNER_MULTI_QUEUE_OFFSET="0")
        for body, code in ((item(b"x", properties.encode()), 13), (item(b"x"), 0)):
            answer = scene.app.ask(RequestCode.SEND_BATCH_MESSAGE, send_ext("mine", m="true"), body)
            assert answer.code == code, answer.remark
        for code in (RequestCode.SEND_MESSAGE, *REPLY_CODES):
            send(
                scene.app,
                "mine",
                b"x",
                code,
                INNER_MULTI_DISPATCH="secret",
                INNER_MULTI_QUEUE_OFFSET="0",
                POP_CK="0",
            )
        stored = scene.app.ask(RequestCode.PULL_MESSAGE, pull_ext("mine", 0)).body
        assert stored.count(b"INNER_MULTI_DISPATCH") == 3
        assert b"INNER_MULTI_QUEUE_OFFSET" not in stored
        assert b"POP_CK" not in stored


@pytest.mark.parametrize("code", [RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, *REPLY_CODES])
def test_all_that_is_stored_needs_the_rights_on_what_its_properties_name(scene: Scene, code: int) -> None:
    if not scene.users:
        return
    refused: list[tuple[str, dict[str, str]]] = [
        ("mine", {"INNER_MULTI_DISPATCH": "%LMQ%secret"}),
        ("%RETRY%G", {"RETRY_TOPIC": "secret"}),
        ("rmq_sys_wheel_timer", {"REAL_TOPIC": "secret", "REAL_QID": "0"}),
        ("rmq_sys_REVIVE_LOG_DefaultCluster", {"TAGS": "ck"}),
    ]
    for topic in ("rmq_sys_wheel_timer", "rmq_sys_REVIVE_LOG_DefaultCluster"):
        grant(scene.root, "app", f"Topic:{topic}", "Pub")
    for topic, properties in refused:
        answer = send(scene.app, topic, b"x", code, REPLY_TO_CLIENT="x", **properties)
        assert answer.code == ResponseCode.NO_PERMISSION, (topic, answer.remark)
    for topic, properties in (("%RETRY%G", {"RETRY_TOPIC": "mine"}), ("mine", {"RETRY_TOPIC": "secret"})):
        answer = send(scene.app, topic, b"x", code, REPLY_TO_CLIENT="x", **properties)
        assert answer.code != ResponseCode.NO_PERMISSION, (topic, answer.remark)


@pytest.mark.parametrize("leaves", [False, True], ids=["stays", "connects again"])
def test_replies_go_to_the_user_that_announced_the_client(tmp_path: Path, leaves: bool) -> None:
    with scene_of(tmp_path / "store", True) as scene:
        register(scene.owner, "asker@1", "PG")
        if leaves:
            scene.owner.close()
        register(scene.app, "asker@1", "PG2")
        if leaves:
            scene.owner = scene.connection("owner")
            register(scene.owner, "asker@1", "PG")
        seen: list[RemotingCommand] = []
        thread = answer_push(scene.owner, seen)
        sent = send(scene.root, REPLIES, b"42", RequestCode.SEND_REPLY_MESSAGE_V2, REPLY_TO_CLIENT="asker@1")
        thread.join(10)
        assert (sent.code, [request.body for request in seen]) == (0, [b"42"])
        register(scene.app, "asker@2", "PG2")  # its own
        thread = answer_push(scene.app, seen)
        sent = send(scene.root, REPLIES, b"43", RequestCode.SEND_REPLY_MESSAGE_V2, REPLY_TO_CLIENT="asker@2")
        thread.join(10)
        assert (sent.code, seen[1].body) == (0, b"43")


def test_only_who_may_send_to_the_topic_is_asked_about_a_transaction(tmp_path: Path) -> None:
    """A check has the whole message, and a group is no secret."""
    often = "transactionTimeOut=100", "transactionCheckInterval=100", "transactionCheckMax=1000"
    with scene_of(tmp_path / "store", True, *often) as scene:
        join(scene.app)
        half = half_of(
            scene.owner.ask(RequestCode.SEND_MESSAGE_V2, half_ext("secret", "K") | {"e": "0"}, b"paid")
        )
        assert scene.app.ask(RequestCode.END_TRANSACTION, end_ext(half, COMMIT)).code != 0
        join(scene.owner)
        for _ in range(3):
            assert await_check(scene.owner)[1].body == b"paid"
        send(scene.app, "mine", b"what has come until now?")
        assert scene.app.requests == []
        grant(scene.root, "app", "Topic:secret", "Pub")
        assert await_check(scene.app)[1].body == b"paid"


def test_recalls_of_another_topic_delete_nothing(scene: Scene) -> None:
    """By a property: with the key, the time and the place of a foreign timer message."""
    wait = {"TIMER_DELAY_MS": "2000"}
    kept = send(scene.owner, "secret", b"kept", UNIQ_KEY="K", **wait)
    handle = kept.ext["recallHandle"]
    due = base64.urlsafe_b64decode(handle + "=" * (-len(handle) % 4)).split(b" ")[3].decode()
    for key in ("K", "secret+K"):
        for code in (RequestCode.SEND_MESSAGE_V2, *REPLY_CODES):
            send(
                scene.app,
                "mine",
                b"0",
                code,
                TIMER_DELIVER_MS=due,
                TIMER_DEL_UNIQKEY=key,
                REAL_TOPIC="secret",
            )
    ext = pull_ext("secret", 0, consumerGroup="OWN", sysFlag="6", suspendTimeoutMillis="8000")
    answer = scene.owner.ask(RequestCode.PULL_MESSAGE, ext)
    assert [found.body for found in records(answer.body)] == [b"kept"]


def test_no_receipt_handle_of_a_sender_comes_back(tmp_path: Path) -> None:
    """In an item of a batch, which is stored as it comes: consumers would acknowledge what it names."""
    with scene_of(tmp_path / "store", False) as scene:
        body = item(b"x", text(POP_CK="0 1 2 3 0 b 0 0", TAGS="t").encode())
        sent = scene.app.ask(RequestCode.SEND_BATCH_MESSAGE, send_ext("mine", m="true"), body)
        back = {"group": "G", "offset": str(offset_of(sent.ext["msgId"])), "delayLevel": "1"}
        ask_ok(scene.app, RequestCode.CONSUMER_SEND_MSG_BACK, back)
        ext = pull_ext("%RETRY%G", 0, sysFlag="6", suspendTimeoutMillis="15000")
        found = scene.app.ask(RequestCode.PULL_MESSAGE, ext)
        assert found.code == 0, found.remark
        assert b"TAGS\x01t" in found.body
        assert b"POP_CK" not in found.body


def test_a_slave_is_shown_no_record_inside_a_body(tmp_path: Path) -> None:
    """By 906: a log that has the slave's last record in a body is another one. A deleted topic's record is one."""
    with scene_of(tmp_path / "store", False, f"haListenPort={free_port()}") as scene:
        at = scene.place()
        assert send(scene.app, "mine", made_up(at, "mine", 0)).code == 0
        sent = send(scene.app, "secret", b"of a deleted topic")
        ask_ok(scene.root, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "secret"})
        for offset, known in ((at, False), (at - BODY_AT, True), (offset_of(sent.ext["msgId"]), True)):
            answer = ask_ok(
                scene.root, RequestCode.EXCHANGE_BROKER_HA_INFO, {"firearrowRecordOffset": str(offset)}
            )
            assert bool(answer.ext["firearrowRecordSum"]) == known


def test_a_walk_to_a_record_without_an_entry_holds_up_no_other_request(tmp_path: Path) -> None:
    """By 906, of a deleted topic that takes more than 100 MB. Its answer is the same as before."""
    body = bytes(300)
    with MessageStore.open(tmp_path / "store", StoreConfig()) as store:
        while store.written < 110 << 20:
            for _ in range(1000):
                last = put(store, body, "large")
            store.write()
    with scene_of(tmp_path / "store", False, f"haListenPort={free_port()}") as scene:
        ask_ok(scene.root, RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext("large", 1))
        ask = partial(ask_ok, scene.root, RequestCode.EXCHANGE_BROKER_HA_INFO)
        expected = ask({"firearrowRecordOffset": str(last.physical_offset)}).ext["firearrowRecordSum"]
        ask_ok(scene.root, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "large"})
        inside = scene.place()
        assert send(scene.app, "mine", made_up(inside, "mine", 1 << 40)).code == 0
        with ThreadPoolExecutor(1) as pool:
            for offset, found in ((last.physical_offset, expected), (inside, "")):
                walk = pool.submit(known_sum, scene.root, offset)
                served = 0
                while not walk.done():
                    ask_ok(scene.owner, RequestCode.GET_MAX_OFFSET, {"topic": "secret", "queueId": "0"})
                    served += 1
                assert walk.result() == found
                assert served > 10 or offset == inside  # which is near what the first walk found


def known_sum(connection: ClientSocket, offset: int) -> str:
    """Ask until the walk is done, as a slave does."""
    while True:
        answer = connection.ask(RequestCode.EXCHANGE_BROKER_HA_INFO, {"firearrowRecordOffset": str(offset)})
        if answer.code != ResponseCode.SYSTEM_BUSY:
            return answer.ext["firearrowRecordSum"]
