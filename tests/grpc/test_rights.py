"""What a client may that names another one, or has no rights: nothing, and it learns no names."""

import datetime
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from firearrow._native.wire.codes import RequestCode
from firearrow.broker.grpc import messages
from tests.auth.secured import SignedSocket, create_user, grant, options
from tests.support.broker_process import BrokerProcess
from tests.support.eventually import eventually
from tests.support.grpc_caller import (
    GrpcCaller,
    create_group,
    create_topic,
    message,
    receive_fields,
    signature,
)
from tests.support.requests import pull_ext, records

STATEFUL = (
    "authenticationStrategy=org.apache.rocketmq.auth.authentication.strategy.StatefulAuthenticationStrategy"
)
ALICE, WORD, MALLORY = "alice", "alice-word", "mallory"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    store = tmp_path_factory.mktemp("rights") / "store"
    with BrokerProcess(store, *options(STATEFUL)) as running:
        with SignedSocket(running.address) as root:
            create_topic(root, "secret", "FIFO")
            create_topic(root, "own")
            create_group(root, "secret-g")
            create_group(root, "own-g")
            for name in (ALICE, MALLORY):
                create_user(root, name, f"{name}-word")
            for name in ("secret", "own"):
                grant(root, ALICE, f"Topic:{name}", "Pub", "Sub", "Get")
                grant(root, ALICE, f"Group:{name}-g", "Sub", "Get")
            grant(root, MALLORY, "Topic:own", "Pub")
        yield running
        assert running.stop() == 0
        assert "Traceback" not in running.log.read_text()


@pytest.fixture
def alice(broker: BrokerProcess) -> Iterator[GrpcCaller]:
    with GrpcCaller(broker.address, "alice@1", signature(ALICE, WORD)) as caller:
        yield caller


def forged() -> list[tuple[str, str]]:
    """The headers of alice, with a signature that is not hers."""
    date, header = signature(ALICE, "guessed")
    return [date, header]


def texts(caller: GrpcCaller, topic: str, group: str) -> dict[str, tuple[str, str]]:
    """What each method answers about these names."""
    to_topic, to_group = {"name": topic}, {"name": group}
    handle = "0 1700000000000 60000 0 0 broker-a 1 5 4096"
    queue = {"topic": to_topic, "id": 0}
    return {
        method: caller.code(method, **fields)
        for method, fields in {
            "QueryRoute": {"topic": to_topic},
            "QueryAssignment": {"topic": to_topic, "group": to_group},
            "SendMessage": {"messages": [message(topic, b"x")]},
            "ReceiveMessage": receive_fields(group, topic),
            "AckMessage": {"group": to_group, "topic": to_topic, "entries": [{"receipt_handle": "wrong"}]},
            "ChangeInvisibleDuration": {"group": to_group, "topic": to_topic, "receipt_handle": "wrong"},
            "ForwardMessageToDeadLetterQueue": {
                "group": to_group,
                "topic": to_topic,
                "receipt_handle": handle,
            },
            "EndTransaction": {"topic": to_topic, "transaction_id": "ID-0-0", "message_id": "ID"},
            "RecallMessage": {"topic": to_topic, "recall_handle": "wrong"},
            "PullMessage": {"group": to_group, "message_queue": queue},
            "UpdateOffset": {"group": to_group, "message_queue": queue},
            "GetOffset": {"group": to_group, "message_queue": queue},
            "QueryOffset": {"message_queue": queue},
            "Heartbeat": {"group": to_group},
            "NotifyClientTermination": {"group": to_group},
        }.items()
    }


@pytest.mark.parametrize("headers", [[], signature(MALLORY, f"{MALLORY}-word")], ids=["unsigned", MALLORY])
def test_who_may_not_learns_no_names(broker: BrokerProcess, headers: list[tuple[str, str]]) -> None:
    """Topics and groups that exist, are of another type, or do not exist have the same answers."""
    with GrpcCaller(broker.address, "m@1", headers) as caller:
        there, missing = (texts(caller, f"{name}", f"{name}-g") for name in ("secret", "secreT"))
        for method, (code, text) in there.items():
            assert code == "UNAUTHORIZED", (method, code, text)
            assert missing[method] == (code, text.replace("secret", "secreT")), method


def test_who_may_not_registers_nothing_and_learns_no_groups(broker: BrokerProcess) -> None:
    answers = []
    with GrpcCaller(broker.address, "m@2", signature(MALLORY, f"{MALLORY}-word")) as caller:
        for group in ("secret-g", "secreT-g"):
            stream = caller.telemetry()
            subscription = {"group": {"name": group}, "subscriptions": []}
            stream.send(settings={"client_type": "SIMPLE_CONSUMER", "subscription": subscription})
            answers.append(stream.receive().status)
    assert [each.code for each in answers] == [messages.CODES["UNAUTHORIZED"]] * 2
    assert answers[0].message.replace("secret-g", "secreT-g") == answers[1].message


def test_a_login_holds_on_its_own_connection_alone(broker: BrokerProcess, alice: GrpcCaller) -> None:
    """Where a connection logs in once, another one that names the same client has to log in itself."""
    alice.produce("own")
    assert alice.code("QueryRoute", topic={"name": "own"})[0] == "OK"
    with GrpcCaller(broker.address, "alice@1", forged()) as thief:
        assert thief.code("QueryRoute", topic={"name": "own"})[0] == "UNAUTHORIZED"
        assert thief.code("NotifyClientTermination")[0] == "UNAUTHORIZED"
    assert alice.code("Heartbeat")[0] == "OK"


def test_the_answer_to_a_command_counts_from_its_client_alone(
    broker: BrokerProcess, alice: GrpcCaller
) -> None:
    """Others could answer for it, since they know its name, and nonces are numbers in order."""
    stream = alice.consume("own-g", "own", kind="PUSH_CONSUMER")

    def asked() -> Any:  # noqa: ANN401
        with SignedSocket(broker.address) as root:
            ext = {"consumerGroup": "own-g", "clientId": "alice@1", "jstackEnable": "true"}
            return root.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, ext)

    with ThreadPoolExecutor(1) as pool, GrpcCaller(broker.address, "alice@1", forged()) as thief:
        answer = pool.submit(asked)
        nonce = stream.receive().print_thread_stack_trace_command.nonce
        other = thief.telemetry()
        for _ in range(3):
            other.send(thread_stack_trace={"nonce": nonce, "thread_stack_trace": "forged"})
        other.send(settings={"client_type": "PRODUCER", "publishing": {"topics": [{"name": "own"}]}})
        assert other.receive().status.code == messages.CODES["UNAUTHORIZED"]
        stream.send(thread_stack_trace={"nonce": nonce, "thread_stack_trace": "right"})
        assert b"right" in answer.result(10).body


def test_calls_that_come_together_are_of_one_client(broker: BrokerProcess) -> None:
    """The stream of Telemetry may be opened before the first call, and have its settings after it."""
    with GrpcCaller(broker.address, "alice@2", signature(ALICE, WORD)) as caller:
        stream = caller.telemetry()
        waiting = caller.telemetry()
        assert caller.code("QueryRoute", topic={"name": "own"})[0] == "OK"
        for each in (stream, waiting):
            each.send(settings={"client_type": "PRODUCER", "publishing": {"topics": [{"name": "own"}]}})
            assert each.receive().status.code == messages.CODES["OK"]
        assert caller.code("Heartbeat")[0] == "OK"
        eventually(lambda: caller.code("Heartbeat")[0] == "OK")


# ---- what a client states about places in the log ----


def own_receipt(broker: BrokerProcess, caller: GrpcCaller, topic: str) -> Any:  # noqa: ANN401
    """A message of the client, received by it."""
    with SignedSocket(broker.address) as root:
        create_topic(root, topic)
        create_group(root, f"{topic}-g")
        for user in (ALICE, MALLORY):
            grant(root, user, f"Topic:{topic}", "Pub", "Sub")
            grant(root, user, f"Group:{topic}-g", "Sub")
    caller.consume(f"{topic}-g", topic)
    caller.send(topic, b"own")
    return caller.receive(f"{topic}-g", topic)[0]


def log_offset(receipt: str) -> str:
    return receipt.rsplit(" ", maxsplit=1)[-1]


def with_log_offset(receipt: str, offset: str) -> str:
    return " ".join([*receipt.split(" ")[:-1], offset])


def forward(caller: GrpcCaller, topic: str, receipt: str) -> tuple[str, str]:
    to_group = {"name": f"{topic}-g"}
    return caller.code(
        "ForwardMessageToDeadLetterQueue", group=to_group, topic={"name": topic}, receipt_handle=receipt
    )


def dead_letters(broker: BrokerProcess, topic: str) -> list[bytes]:
    with SignedSocket(broker.address) as root:
        answer = root.ask(RequestCode.PULL_MESSAGE, pull_ext(f"%DLQ%{topic}-g"))
        return [record.body for record in records(answer.body)]


def test_a_receipt_forwards_its_own_message_alone(broker: BrokerProcess, alice: GrpcCaller) -> None:
    """Its offset in the log comes from outside: another message there would become a dead letter of this group."""
    alice.produce("secret")
    alice.send("secret", b"another topic", kind="FIFO", message_group="g")
    receipt = own_receipt(broker, alice, "forwarded").system_properties.receipt_handle
    alice.send("forwarded", b"another message")
    with SignedSocket(broker.address) as root:
        places = []
        for topic in ("secret", "forwarded"):
            for queue_id in range(4):
                body = root.ask(RequestCode.PULL_MESSAGE, pull_ext(topic, queue_id=queue_id)).body
                places += [(record.body, str(record.physical_offset)) for record in records(body)]
    for found, offset in places:
        if found != b"own":
            answer = forward(alice, "forwarded", with_log_offset(receipt, offset))
            assert answer[0] == "INVALID_RECEIPT_HANDLE", (found, answer)
    assert dead_letters(broker, "forwarded") == []
    assert forward(alice, "forwarded", receipt) == ("OK", "0")
    assert dead_letters(broker, "forwarded") == [b"own"]


def half_of(broker: BrokerProcess, caller: GrpcCaller, topic: str) -> Any:  # noqa: ANN401
    with SignedSocket(broker.address) as root:
        create_topic(root, topic, "TRANSACTION")
        grant(root, ALICE, f"Topic:{topic}", "Pub")
    return caller.send(topic, b"half", kind="TRANSACTION").entries[0]


def end(caller: GrpcCaller, topic: str, transaction_id: str) -> tuple[str, str]:
    fields = {"topic": {"name": topic}, "transaction_id": transaction_id, "message_id": "ID"}
    return caller.code("EndTransaction", **fields, resolution="COMMIT", source="SOURCE_CLIENT")


def test_who_may_not_learns_no_topic_from_an_offset(broker: BrokerProcess, alice: GrpcCaller) -> None:
    """Whoever guesses an offset in the log does not learn whose message is there."""
    entry = half_of(broker, alice, "hidden-half")
    alice.send("secret", b"hidden", kind="FIFO", message_group="g")
    with GrpcCaller(broker.address, "m@3", signature(MALLORY, f"{MALLORY}-word")) as mallory:
        receipt = own_receipt(broker, mallory, "guesses").system_properties.receipt_handle
        with SignedSocket(broker.address) as root:
            hidden = [
                record.physical_offset
                for queue_id in range(4)
                for record in records(
                    root.ask(RequestCode.PULL_MESSAGE, pull_ext("secret", queue_id=queue_id)).body
                )
            ]
        there, nowhere = (
            forward(mallory, "guesses", with_log_offset(receipt, str(offset)))
            for offset in (hidden[0], 1 << 40)
        )
        ended = end(mallory, "own", entry.transaction_id)
    text = "the message at offset {} is another one, or deleted"
    assert there == ("INVALID_RECEIPT_HANDLE", text.format(hidden[0]))
    assert nowhere == ("INVALID_RECEIPT_HANDLE", text.format(1 << 40))
    assert ended[0] == "UNAUTHORIZED"
    assert "secret" not in ended[1]
    assert "hidden" not in ended[1]
    with SignedSocket(broker.address, MALLORY, f"{MALLORY}-word") as mallory:
        for code, ext in (
            (RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(hidden[0])}),
            (RequestCode.CONSUMER_SEND_MSG_BACK, {"group": "guesses-g", "offset": str(hidden[0])}),
        ):
            remark = mallory.ask(code, ext | {"delayLevel": "0"}).remark or ""
            assert "has no permission" in remark
            assert "secret" not in remark


def test_a_transaction_is_ended_by_who_knows_its_message(broker: BrokerProcess, alice: GrpcCaller) -> None:
    """Its offsets alone could be guessed; and it is ended under its own topic."""
    entry = half_of(broker, alice, "halves")
    half_of(broker, alice, "other-halves")
    places = entry.transaction_id.removeprefix(entry.message_id)
    for guessed in (places, f"-{places}", f"ID-guessed{places}"):
        assert end(alice, "halves", guessed)[0] != "OK"
    assert end(alice, "other-halves", entry.transaction_id)[0] != "OK"
    assert end(alice, "halves", entry.transaction_id) == ("OK", "OK")


def set_age(broker: BrokerProcess, seconds: int) -> None:
    with SignedSocket(broker.address) as root:
        body = f"grpcSignatureMaxAgeSec={seconds}".encode()
        assert root.ask(RequestCode.UPDATE_BROKER_CONFIG, body=body).code == 0


def date(of: datetime.datetime, text: str = "%Y%m%dT%H%M%SZ") -> str:
    return of.strftime(text)


def at_time(broker: BrokerProcess, text: str) -> tuple[str, str]:
    """What a route that alice asks for answers, if she signs this time."""
    with GrpcCaller(broker.address, "alice@3", signature(ALICE, WORD, text)) as caller:
        return caller.code("QueryRoute", topic={"name": "own"})


def test_signatures_have_an_age_if_it_is_limited(broker: BrokerProcess, alice: GrpcCaller) -> None:
    now = datetime.datetime.now(datetime.UTC)
    local = now + datetime.timedelta(hours=8)
    assert at_time(broker, date(local))[0] == "OK"
    assert at_time(broker, "no time")[0] == "OK"
    sends = [message("own", b"x")]
    for _ in range(2):
        assert alice.code("SendMessage", messages=sends)[0] == "OK", "the second one is plain"
    set_age(broker, 60)
    try:
        assert alice.code("SendMessage", messages=sends)[0] == "UNAUTHORIZED"
        assert at_time(broker, date(now))[0] == "OK"
        assert at_time(broker, date(now, "%Y-%m-%dT%H:%M:%S.123456789Z"))[0] == "OK"
        assert at_time(broker, (now + datetime.timedelta(seconds=30)).isoformat())[0] == "OK"
        for text in (date(local), date(now - datetime.timedelta(seconds=90)), "00010101T000000+2359"):
            code, reason = at_time(broker, text)
            assert (code, "more than 60 s from this broker's time" in reason) == ("UNAUTHORIZED", True)
        assert at_time(broker, "no time") == (
            "UNAUTHORIZED",
            "x-mq-date-time cannot be read as a time: no time",
        )
    finally:
        set_age(broker, 0)


def test_the_age_of_an_open_stream_is_that_of_its_beginning(broker: BrokerProcess) -> None:
    set_age(broker, 2)
    try:
        opened = date(datetime.datetime.now(datetime.UTC))
        with GrpcCaller(broker.address, "alice@4", signature(ALICE, WORD, opened)) as caller:
            stream = caller.produce("own")
            eventually(lambda: at_time(broker, opened)[0] == "UNAUTHORIZED", what="that it is old")
            stream.send(settings={"client_type": "PRODUCER", "publishing": {"topics": [{"name": "own"}]}})
            assert stream.receive().status.code == messages.CODES["OK"]
    finally:
        set_age(broker, 0)


def test_a_captured_header_does_what_its_user_may(broker: BrokerProcess) -> None:
    """It is that of no method, and of no request, as at Apache's proxy: rights are all that limits it."""
    captured = signature(MALLORY, f"{MALLORY}-word")
    with GrpcCaller(broker.address, "m@3", captured) as caller:
        assert caller.code("SendMessage", messages=[message("own", b"x")])[0] == "OK"
        assert (
            caller.code("QueryAssignment", topic={"name": "own"}, group={"name": "own-g"})[0]
            == "UNAUTHORIZED"
        )
