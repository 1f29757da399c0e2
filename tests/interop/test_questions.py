"""The page "What do I type when …" of docs/CLI.md: each command, run against a cluster in disorder, answers.

One group has members and dead letters, one is down and has lag, one message is due later.
"""

import shlex
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from firearrow.client.admin_api.records import GroupConfig
from firearrow.client.base.message import Message
from firearrow.client.base.options import ConsumeFromWhere, PushConsumerOptions
from firearrow.client.blocking import Admin, Producer, PushConsumer
from tests.interop.peers import LIFE, Apache, FireArrow, Peer
from tests.interop.toolchain import java_class_path, need
from tests.meta.questions import QUESTIONS, Question
from tests.support.command_line import here
from tests.support.eventually import eventually

SETTINGS = LIFE | {"autoCreateTopicEnable": "true"}
MESSAGES = 12
APACHE = pytest.param("apache", marks=[pytest.mark.interop, pytest.mark.long])


class Disorder:
    """`message_id`: of the order with the key 42."""

    def __init__(self, peer: Peer, message_id: str) -> None:
        self.peer = peer
        self.message_id = message_id


def dead_letters(name_server: str) -> bool:
    return any(row["group"] == "billing" for row in here("dlq", "list", name_server=name_server).lines)


def make_disorder(peer: Peer, running: ExitStack) -> Disorder:
    names = peer.name_server
    here("topic", "create", "orders", "--queues", "2", name_server=names).succeeded()
    with Admin(names) as admin:
        admin.create_group(GroupConfig(group="billing", retries_max=0))
        admin.create_group("shipping")
    seen: list[object] = []

    def bill(messages: list[object]) -> bool:
        """It fails for one order, which is a dead letter at once."""
        seen.extend(messages)
        return not any(b"poison" in message.body for message in messages)  # type: ignore[attr-defined]

    options = PushConsumerOptions(from_where=ConsumeFromWhere.FIRST_OFFSET, max_reconsume_times=0)
    billing = PushConsumer("billing", name_server=names, options=options)
    billing.subscribe("orders", bill)
    running.enter_context(billing)
    with Producer("shop", name_server=names) as producer:
        for number in range(MESSAGES):
            producer.send(Message("orders", b'{"total": %d}' % (number * 9)))
        producer.send(Message("orders", b"poison"))
        kept = producer.send(Message("orders", b"order 42", keys=["42"]))
    here("send", "orders", "later", "--delay", "1h", name_server=names).succeeded()
    here("group", "seek", "shipping", "orders", "--to", "start", "--yes", name_server=names).succeeded()
    eventually(lambda: len(seen) >= MESSAGES + 2, 30)
    eventually(lambda: dead_letters(names), 60)
    eventually(lambda: here("message", "find", "orders", "--key", "42", name_server=names).code == 0, 30)
    return Disorder(peer, kept.message_id)


@pytest.fixture(scope="module", params=["firearrow", APACHE])
def disorder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Disorder]:
    store = tmp_path_factory.mktemp("disorder") / "store"
    if request.param == "apache":
        need(lambda: java_class_path(Apache.program))
    with ExitStack() as running:
        kind = FireArrow if request.param == "firearrow" else Apache
        peer = running.enter_context(kind(store, SETTINGS))
        yield make_disorder(peer, running)


def test_there_are_twenty_questions() -> None:
    assert len({question.command for question in QUESTIONS}) == len(QUESTIONS) == 20


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.command)
def test_the_command_answers(disorder: Disorder, question: Question) -> None:
    words = [disorder.message_id if word == "ID" else word for word in shlex.split(question.command)]
    ran = here(*words[1:], name_server=disorder.peer.name_server)
    if question.ours and disorder.peer.kind != "firearrow":
        assert (ran.code, "FireArrow" in ran.err) == (2, True), ran
        return
    assert ran.code == question.code, ran
    assert question.shows in ran.out + ran.err, ran
