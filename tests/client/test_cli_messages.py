"""The commands about messages: what they print on a terminal, what they refuse, and how they go on after faults.

tests/interop/test_cli_messages.py has what they do, with our broker and with Apache's.
"""

import asyncio
import os
import pty
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from firearrow.client.base.errors import ConfigError
from firearrow.client.base.options import ConsumeFromWhere, PopConsumerOptions, PushConsumerOptions
from firearrow.client.base.times import now_ms
from firearrow.client.cli.messages.message_view import Template
from firearrow.client.cli.messages.queue_reader import From, Start
from firearrow.client.cli.messages.send_delay import delay_levels
from firearrow.client.consume.consume_results import ConsumeResult
from firearrow.client.consumers.pop_consumer import PopConsumer
from firearrow.client.consumers.push_consumer import PushConsumer
from firearrow.client.local_broker import LocalBroker
from tests.client.conftest import unique
from tests.client.raw_producer import RawProducer
from tests.interop.cli_messages import Cli, open_transaction
from tests.interop.peers import Peer
from tests.support.eventually import eventually
from tests.support.fork_server import ForkedCommand

VERBS = [
    "send",
    "tail",
    *(f"message {verb}" for verb in ("get", "find", "path", "resend")),
    *(f"dlq {verb}" for verb in ("list", "show", "redrive", "export", "drop", "receipts")),
    *(f"timer {verb}" for verb in ("list", "recall")),
    *(f"tx {verb}" for verb in ("list", "ask", "commit", "rollback")),
    "queue who",
]
MOVING = ["dlq redrive", "dlq drop", "message resend", "timer recall", "tx ask", "tx commit", "tx rollback"]
NOWHERE = "127.0.0.1:1"
WAIT_S = 30
Topics = Callable[..., str]


@pytest.fixture
def cli(name_server: str) -> Cli:
    return Cli(name_server)


def on_terminal(name_server: str, *words: str) -> bytes:
    """The output of a command on a terminal, as it was written."""
    outer, inner = pty.openpty()
    environment = os.environ | {"COLUMNS": "200", "TZ": "UTC"}
    with ForkedCommand(
        ["firearrow", *words, "--namesrv", name_server],
        stdin=inner,
        stdout=inner,
        stderr=inner,
        env=environment,
    ) as process:
        os.close(inner)
        written = b""
        try:
            while chunk := os.read(outer, 1 << 16):
                written += chunk
        except OSError:  # EIO: the other side is closed
            pass
        process.wait(WAIT_S)
    os.close(outer)
    return written.replace(b"\r\n", b"\n")


# ---- what is typed ----


@pytest.mark.parametrize("verb", VERBS)
def test_help_has_examples(cli: Cli, verb: str) -> None:
    help_text = cli(*verb.split(), "--help").out
    assert f"examples:\n  firearrow {verb}" in help_text
    assert ("--dry-run" in help_text and "--yes" in help_text) == (verb in MOVING)


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("start", Start(From.START)),
        ("end", Start(From.END)),
        ("-10", Start(From.LAST, 10)),
        ("0", Start(From.OFFSET, 0)),
        ("999999999", Start(From.OFFSET, 999_999_999)),
        ("1700000000", Start(From.TIME, 1_700_000_000_000)),
        ("2026-01-31T12:00+00:00", Start(From.TIME, 1_769_860_800_000)),
    ],
)
def test_places_to_start(text: str, start: Start) -> None:
    assert Start.parse(text) == start
    assert abs(Start.parse("-15m").value - (now_ms() - 900_000)) < 5000
    with pytest.raises(ConfigError, match="no place to start"):
        Start.parse(f"{text}?")


def test_a_template_names_known_fields() -> None:
    with pytest.raises(ConfigError, match="bodi"):
        Template("{bodi}")
    with pytest.raises(ConfigError, match="property"):
        Template("{property}")


def test_delay_levels_are_read() -> None:
    assert delay_levels("1s 2m 1h x 3d") == {1: 1000, 2: 120_000, 3: 3_600_000, 5: 259_200_000}


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["send", "t", "x", "--delay", "1s", "--at", "+1s"], "not both"),
        (["send", "t", "x", "--count", "0"], "over 0"),
        (["send", "t", "x", "--each-line", "--count", "2"], "not both"),
        (["send", "t", "x", "--property", "novalue"], "KEY=VALUE"),
        (["send", "t", "@/nowhere"], "cannot read /nowhere"),
        (["send", "t", "x", "--at", "soon"], "not a time"),
        (["tail", "t", "--grep", "("], "regular expression"),
        (["tail", "t", "--format", "{nothing}"], "no field"),
        (["tail", "t", "--tag", "a", "--sql", "b = 1"], "not both"),
        (["message", "find", "t", "--key", "k", "--limit", "1000000"], "at most"),
        (["message", "resend", "t", "0" * 32, "--client", "c"], "--group"),
        (["dlq", "drop", "g", "--redriven", "--before", "-1h"], "not both"),
        (["top", "--series", "in."], "--series needs --since"),
    ],
)
def test_wrong_use(cli: Cli, words: list[str], reason: str) -> None:
    assert reason in cli(*words, code=2).err


@pytest.mark.parametrize(
    "words",
    [
        ["send", "t", "x"],
        ["tail", "t"],
        ["message", "get", "t", "0" * 32],
        ["dlq", "list"],
        ["tx", "commit", "0" * 32, "-y"],
    ],
)
def test_unreachable_servers(words: list[str]) -> None:
    assert f"{NOWHERE}: nothing listens there: start the server" in Cli(NOWHERE)(*words, code=3).err


def test_a_group_without_dead_letters(cli: Cli) -> None:
    for words in (["show"], ["redrive", "--dry-run"], ["drop", "--yes"], ["drop", "--redriven", "--yes"]):
        refused = cli("dlq", words[0], "no-such-group", *words[1:], code=1)
        assert "group no-such-group has no dead letters" in refused.err


def test_sql_that_is_switched_off_says_how_to_switch_it_on() -> None:
    with LocalBroker() as broker:
        cli, topic = Cli(broker.name_server), unique("topic")
        cli("send", topic, "x")
        words = ["tail", topic, "--from", "start", "--no-follow", "--sql", "a IS NULL"]
        refused = cli(*words, code=1)
        assert "switch it on: firearrow config set enablePropertyFilter=true" in refused.err
        cli("config", "set", "enablePropertyFilter=true", "--yes")
        assert [row["body"] for row in cli(*words).rows] == ["x"]


def test_a_broker_without_users_says_so(cli: Cli) -> None:
    assert "start it with authenticationEnabled=true" in cli("user", "list", code=1).err


# ---- a terminal ----


def test_no_control_characters_reach_a_terminal(
    name_server: str, topics: Topics, feeder: RawProducer, cli: Cli
) -> None:
    topic = topics(queues=1)
    evil = "\x1b]0;owned\x07\x9b31m"
    feeder.feed(topic, [evil.encode()], tag=evil, KEYS=evil, UNIQ_KEY="0" * 32, own=evil)
    for words in (
        ["tail", topic, "--from", "start", "-e"],
        ["tail", topic, "--from", "start", "-e", "--json"],
        ["tail", topic, "--from", "start", "-e", "--format", "{tags} {property:own} {body}"],
        ["message", "get", topic, "0" * 32],
        ["message", "find", topic, "--from", "-1h"],
        ["message", "path", topic, "0" * 32],
        ["message", "get", topic, evil],
    ):
        written = on_terminal(name_server, *words).decode()
        assert written.replace("\n", "").isprintable(), (words, written)
        assert "owned" in written or "path" in words
    piped = cli("tail", topic, "--from", "start", "-e", "--format", "{body}").out
    assert piped == f"{evil}\n", "a pipe gets what was sent"


def test_a_terminal_shows_lines_and_tables(name_server: str, topics: Topics, feeder: RawProducer) -> None:
    topic = topics(queues=1)
    feeder.feed(topic, [b"hello"], tag="new", KEYS="a b", UNIQ_KEY="AB" * 16)
    line = on_terminal(name_server, "tail", topic, "--from", "start", "-e").decode()
    assert re.fullmatch(rf"\S+\+00:00 {topic} \S+/0:0 \[new\] a,b hello\n", line)
    table = on_terminal(name_server, "message", "find", topic, "--from", "-1h").decode().splitlines()
    assert table[0].split() == ["STORED", "QUEUE", "OFFSET", "MESSAGE", "ID", "TAGS", "KEYS", "BODY"]
    assert table[1].split()[-4:] == ["new", "a,", "b", "hello"]
    sent = on_terminal(name_server, "send", topic, "x").decode()
    assert re.search(r"^status +SEND_OK$", sent, re.M)


def test_a_question_comes_before_what_moves(name_server: str, topics: Topics, feeder: RawProducer) -> None:
    topic = topics(queues=1)
    feeder.feed(topic, [b"x"], UNIQ_KEY="CD" * 16)
    outer, inner = pty.openpty()
    command = ["firearrow", "message", "resend", topic, "CD" * 16, "-n", name_server]
    with ForkedCommand(command, stdin=inner, stdout=inner, stderr=inner) as process:
        os.close(inner)
        asked = b""
        while b"[y/N]" not in asked:
            asked += os.read(outer, 1000)
        os.write(outer, b"n\n")
        assert process.wait(WAIT_S) == 0
    os.close(outer)
    assert len(Cli(name_server)("tail", topic, "--from", "start", "-e").lines) == 1


# ---- many queues, and faults ----


def test_what_is_stored_comes_by_time(cli: Cli, topics: Topics, feeder: RawProducer) -> None:
    topic = topics(queues=4)
    for number in range(40):
        feeder.feed(topic, [b"%d" % number], queue_id=number % 4)
        time.sleep(0.002)  # so that store times differ
    rows = cli("tail", topic, "--from", "start", "-e").lines
    assert [int(row["body"]) for row in rows] == list(range(40))
    assert [int(row["body"]) for row in cli("tail", topic, "--from", "-3", "-e").lines] == [37, 38, 39]


def test_several_topics_at_once(cli: Cli, topics: Topics, feeder: RawProducer) -> None:
    first, second = topics(queues=1), topics(queues=1)
    feeder.feed(first, [b"a"])
    feeder.feed(second, [b"b"])
    rows = cli("tail", first, second, first, "--from", "start", "-e").lines
    assert [(row["topic"], row["body"]) for row in rows] == [(first, "a"), (second, "b")]


def test_reading_many_messages_is_fast(cli: Cli, topics: Topics, feeder: RawProducer) -> None:
    topic = topics(queues=2)
    cli("send", topic, "x" * 100, "--count", "20000")
    began = time.monotonic()
    assert cli("tail", topic, "--from", "start", "-e", "--format", "{offset}").out.count("\n") == 20000
    assert time.monotonic() - began < WAIT_S, "some seconds, on a busy machine"


def test_tail_goes_on_after_the_broker_was_away() -> None:
    topic = unique("topic")
    with LocalBroker() as broker:
        Cli(broker.name_server)("send", topic, "before")
        command = ["firearrow", "tail", topic, "--from", "start", "-n", "2"]
        with ForkedCommand(
            [*command, "--namesrv", broker.name_server], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            assert b'"before"' in process.stdout.readline()
            time.sleep(0.5)
            broker.kill()
            assert b"trying again" in process.stderr.readline()
            broker.start()
            Cli(broker.name_server)("send", topic, "after")
            assert b'"after"' in process.stdout.readline()
            assert process.wait(WAIT_S) == 0


def test_sends_that_fail_are_counted(peer: Peer, cli: Cli, topics: Topics, tmp_path: Path) -> None:
    """A line that no message may have ends it; what was sent before is known."""
    topic = topics(queues=1)
    (tmp_path / "lines").write_bytes(b"fine\n" + b"x" * ((4 << 20) + 1))
    assert "4194304" in cli("send", topic, f"@{tmp_path / 'lines'}", "--each-line", code=2).err
    assert cli("tail", topic, "--from", "start", "-e").lines[0]["body"] == "fine"
    assert "4194304" in cli("send", topic, f"@{tmp_path / 'lines'}", code=2).err


# ---- open transactions ----


def test_a_discarded_transaction_is_asked_for_again() -> None:
    settings = {"transactionTimeOut": "500", "transactionCheckInterval": "1000", "transactionCheckMax": "1"}
    with LocalBroker(settings=settings) as broker:
        cli, topic, group = Cli(broker.name_server), unique("topic"), unique("tx")
        kept = open_transaction(broker, topic, group, asked=True)
        (discarded,) = eventually(lambda: cli("tx", "list", "--discarded", "--group", group, code=None).lines)
        assert (discarded["topic"], discarded["msgId"]) == (topic, kept)
        assert cli("tx", "list", "--discarded", "--group", "other").out == ""
        path = {row["step"]: row for row in cli("message", "path", topic, kept, code=1).lines}
        assert "tx ask" in path["discarded"]["detail"]
        assert "discarded" in cli("tx", "commit", kept, "--yes", code=2).err
        assert "would let" in cli("tx", "ask", kept, "--dry-run").err

        def resumed_and_committed() -> bool:
            """A check may come first and discard it again."""
            cli("tx", "ask", kept, "--yes", code=None)
            return cli("tx", "commit", kept, "--yes", code=None).code == 0

        eventually(resumed_and_committed)
        assert "by itself" in cli("tx", "ask", discarded["offsetMsgId"], "--yes", code=2).err
        assert eventually(lambda: cli("tail", topic, "--from", "start", "-e").lines)[0]["body"] == "half"


# ---- what only our broker knows ----


def test_who_holds_an_ordered_queue(name_server: str, topics: Topics, feeder: RawProducer) -> None:
    topic, group, cli = topics(queues=2), unique("ordered"), Cli(name_server)
    feeder.feed(topic, [b"stuck", b"behind it"])

    async def consume_and_ask() -> list[dict[str, Any]]:
        options = PushConsumerOptions(from_where=ConsumeFromWhere.FIRST_OFFSET, orderly=True)
        consumer = PushConsumer(group, name_server=name_server, options=options)
        consumer.subscribe(topic, lambda _: ConsumeResult.RETRY_LATER)
        async with consumer, asyncio.timeout(WAIT_S):
            while True:
                locks = (await asyncio.to_thread(cli, "queue", "who", group)).lines
                if {row["queueId"] for row in locks if row["topic"] == topic} == {0, 1}:
                    return locks

    locks = {row["queueId"]: row for row in asyncio.run(consume_and_ask()) if row["topic"] == topic}
    assert locks[0]["connected"]
    assert locks[0]["headOffset"] == 0
    assert locks[1]["headOffset"] is None


def test_a_path_shows_what_was_popped(name_server: str, topics: Topics, cli: Cli) -> None:
    topic, group = topics(queues=1), unique("popping")
    sent = cli("send", topic, "x").lines[0]

    async def pop() -> None:
        options = PopConsumerOptions(from_where=ConsumeFromWhere.FIRST_OFFSET, wait_s=2)
        popping = PopConsumer(group, name_server=name_server, options=options)
        popping.subscribe(topic)
        async with popping, asyncio.timeout(WAIT_S):
            while not await popping.receive():
                pass

    asyncio.run(pop())
    steps = {row["group"]: row for row in cli("message", "path", topic, sent["msgId"]).lines}
    assert steps[group]["step"] == "popped"
    assert "visible again" in steps[group]["detail"]
