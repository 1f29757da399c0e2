"""`queue park` and `queue unlock`: an ordered queue whose head cannot be consumed."""

from collections.abc import Sequence
from pathlib import Path

from firearrow.client import (
    ConsumeFromWhere,
    Message,
    PushConsumerOptions,
    ReceivedMessage,
    Suspend,
    blocking,
)
from tests.support.broker_process import BrokerProcess
from tests.support.command_line import here
from tests.support.eventually import eventually


def heads(where: str) -> list[object]:
    """Of the queues of `orders`; members also lock those of their retry topic."""
    rows = here("queue", "who", "billing", name_server=where).lines
    return [row["headMsgId"] for row in rows if row["topic"] == "orders"]


def test_the_head_of_a_queue_is_parked(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "store", "--set", "longPollingEnable=false") as broker:
        assert broker.name_server is not None
        where = "{}:{}".format(*broker.name_server)
        with (
            blocking.Admin(name_server=where) as admin,
            blocking.Producer("p", name_server=where) as producer,
        ):
            admin.create_topic("orders", 1)
            sent = [producer.send(Message("orders", text)).message_id for text in (b"poison", b"a", b"b")]
            consumed: list[bytes] = []

            def consume(messages: Sequence[ReceivedMessage]) -> Suspend | None:
                if messages[0].body == b"poison":
                    return Suspend(1)
                consumed.extend(each.body for each in messages)
                return None

            options = PushConsumerOptions(
                from_where=ConsumeFromWhere.FIRST_OFFSET, orderly=True, batch_size=1
            )
            consumer = blocking.PushConsumer("billing", name_server=where, options=options)
            consumer.subscribe("orders")(consume)
            with consumer:
                assert eventually(lambda: heads(where)) == [sent[0]]
                dry = here("queue", "park", "billing", "orders", "0", "--dry-run", name_server=where)
                assert f"would park message {sent[0]} at offset 0" in dry.err
                parked = here("queue", "park", "billing", "orders", "0", "--yes", name_server=where)
                assert parked.code == 0, parked
                eventually(lambda: consumed == [b"a", b"b"], 60)
                [letter] = here("dlq", "show", "billing", name_server=where).lines
                assert (letter["body"], letter["originTopic"]) == ("poison", "orders")
                eventually(lambda: heads(where) == [None])
                empty = here("queue", "park", "billing", "orders", "0", "--yes", name_server=where)
                assert (empty.code, "has no message" in empty.err) == (1, True)
                unlocked = here("queue", "unlock", "billing", "orders", "0", "--yes", name_server=where)
                assert unlocked.code == 0, unlocked
            for verb in ("park", "unlock"):
                answer = here("queue", verb, "billing", "orders", "7", "--yes", name_server=where)
                assert (answer.code, "no member of billing consumes queue 7" in answer.err) == (1, True)
    assert here("timer", "lag", name_server="127.0.0.1:1").code == 3


def test_lateness(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "store") as broker:
        assert broker.name_server is not None
        where = "{}:{}".format(*broker.name_server)
        assert here("send", "orders", "later", "--delay", "1h", name_server=where).code == 0
        row = eventually(
            lambda: next(
                (row for row in here("timer", "lag", name_server=where).lines if row["waiting"]), None
            )
        )
        assert row is not None
        assert (row["lateMs"], row["waiting"]) == (0, 1)
