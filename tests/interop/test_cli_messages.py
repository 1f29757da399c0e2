"""`firearrow send`, `tail`, `message`, `dlq`, `timer` and `tx` with our broker and with Apache's."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from firearrow.client.admin_api.admin import Admin
from firearrow.client.base.message import Message
from firearrow.client.base.options import ProducerOptions
from firearrow.client.consume.consume_results import ConsumeResult
from firearrow.client.send.producer import Producer
from tests.client.conftest import unique
from tests.interop.cli_messages import PARENT, Cli, consume, dead_letter, new_topic, open_transaction
from tests.interop.peers import BROKER, LIFE, MARKS_AT_ONCE, Apache, FireArrow, Peer
from tests.interop.toolchain import java_class_path, need
from tests.support.command_line import PROGRAM
from tests.support.eventually import eventually
from tests.support.killing import killing

SETTINGS = {"autoCreateTopicEnable": "true", "brokerName": BROKER} | LIFE | {"transactionTimeOut": "600000"}


@pytest.fixture(scope="module", params=["firearrow", pytest.param("apache", marks=pytest.mark.interop)])
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    store = tmp_path_factory.mktemp("cli") / "store"
    if request.param == "firearrow":
        with FireArrow(store, SETTINGS) as ours:
            yield ours
    else:
        need(lambda: java_class_path("client5"))
        with Apache(store, SETTINGS | MARKS_AT_ONCE) as apache:
            yield apache


@pytest.fixture
def cli(broker: Peer) -> Cli:
    return Cli(broker.name_server)


@pytest.fixture
def topic(broker: Peer) -> str:
    return new_topic(broker)


# ---- send and tail ----


def test_what_is_sent_is_read(cli: Cli, topic: str) -> None:
    sent = cli(
        "send", topic, "hällo", "--tag", "new", "--key", "a", "--key", "b", "--property", "p=1=2"
    ).lines[0]
    assert sent["status"] == "SEND_OK"
    assert sent["topic"] == topic
    read = cli("tail", topic, "--from", "start", "-e").lines[0]
    assert {name: read[name] for name in ("body", "tags", "keys", "msgId", "offset", "queueId")} == {
        "body": "hällo",
        "tags": "new",
        "keys": ["a", "b"],
        "msgId": sent["msgId"],
        "offset": 0,
        "queueId": sent["queueId"],
    }
    assert read["properties"]["p"] == "1=2"


def test_a_sharding_key_chooses_the_queue(cli: Cli, topic: str) -> None:
    queues = {cli("send", topic, "x", "--shard", "one").lines[0]["queueId"] for _ in range(3)}
    assert len(queues) == 1


def test_many_are_sent_by_number_and_by_line(cli: Cli, topic: str, tmp_path: Path) -> None:
    assert cli("send", topic, "x", "--count", "50").lines[0]["sent"] == 50
    (tmp_path / "lines").write_bytes(b"".join(b"line %d\r\n\n" % number for number in range(3000)) + b"end")
    assert cli("send", topic, f"@{tmp_path / 'lines'}", "--each-line").lines[0]["sent"] == 3001
    found = cli("tail", topic, "--from", "start", "-e", "--format", "{body}").out.splitlines()
    assert sorted(found) == sorted(["x"] * 50 + [f"line {number}" for number in range(3000)] + ["end"])


def test_lines_of_a_pipe_are_sent_as_they_come(cli: Cli, topic: str) -> None:
    command = [*PROGRAM, "send", topic, "-", "--each-line"]
    command += ["-n", cli.namesrv]
    with killing(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"first\n")
        process.stdin.flush()
        eventually(lambda: "first" in cli("tail", topic, "--from", "start", "-e", code=None).out)
        process.stdin.write(b"second")
        process.stdin.close()
        assert b'"sent":2' in process.stdout.read()
        assert process.wait(10) == 0


def test_the_rate_is_kept(cli: Cli, topic: str) -> None:
    began = time.monotonic()
    cli("send", topic, "x", "--count", "11", "--rate", "20")
    assert 0.5 <= time.monotonic() - began < 5


def test_tail_starts_where_it_is_told(cli: Cli, topic: str) -> None:
    for number in range(6):
        cli("send", topic, str(number), "--tag", "even" if number % 2 == 0 else "odd", "--key", f"k{number}")
    middle_ms = cli("tail", topic, "--from", "start", "-e").lines[3]["storedMs"]

    def bodies(*options: str) -> str:
        return "".join(row["body"] for row in cli("tail", topic, "-e", *options).lines)

    assert bodies("--from", "start") == "012345"
    assert bodies("--from", "end") == ""
    assert bodies("--from", "-2") == "45"
    assert bodies("--from", "start", "-n", "2") == "01"
    assert bodies("--from", "-1h", "--tag", "odd") == "135"
    assert bodies("--from", str(middle_ms)) == "345"
    assert bodies("--from", "start", "--key", "k4") == "4"
    assert bodies("--from", "start", "--grep", "[23]") == "23"
    assert bodies("--from", "start", "--sql", "TAGS = 'even'") == "024"
    later = [row["body"] for row in cli("tail", topic, "--from", "start", "-e").lines if row["offset"] >= 2]
    assert bodies("--from", "2") == "".join(later), "from offset 2 of each queue"


def test_tail_follows_and_finds_new_queues(broker: Peer, cli: Cli, topic: str) -> None:
    cli("send", topic, "before")
    command = [*PROGRAM, "tail", topic, "--from", "-1", "-n", "3", "--namesrv", cli.namesrv]
    with killing(subprocess.Popen(command, stdout=subprocess.PIPE)) as process:
        assert process.stdout is not None
        assert b'"before"' in process.stdout.readline()
        cli("send", topic, "first")
        assert b'"first"' in process.stdout.readline()

        async def more_queues() -> None:
            async with Admin(broker.name_server) as admin, Producer("p", name_server=broker.name_server) as p:
                await admin.create_topic(topic, 3)
                (queue,) = [each for each in await admin.queues(topic) if each.queue_id == 2]
                await p.send(Message(topic, b"second"), queue=queue)

        asyncio.run(more_queues())
        assert b'"second"' in process.stdout.readline()
        assert process.wait(10) == 0


def test_no_group_is_changed(broker: Peer, cli: Cli, topic: str) -> None:
    cli("send", topic, "x")
    cli("tail", topic, "--from", "start", "-e")

    async def groups() -> list[str]:
        async with Admin(broker.name_server) as admin:
            return await admin.groups_of(topic)

    assert asyncio.run(groups()) == []


def test_bodies_are_decoded(cli: Cli, topic: str, tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\x00")
    cli("send", topic, f"@{tmp_path / 'binary'}")
    cli("send", topic, '{"a": [1]}')
    found = cli("tail", topic, "--from", "start", "-e").lines
    assert [(row["body"], row.get("bodyEncoding")) for row in found] == [
        ("/wA=", "base64"),
        ('{"a": [1]}', None),
    ]
    assert cli("tail", topic, "--from", "start", "-e", "--decode", "json").lines[1]["body"] == {"a": [1]}
    assert cli("tail", topic, "--from", "start", "-e", "--decode", "hex").lines[0]["body"] == "ff00"


# ---- delays ----


def test_a_delayed_message_comes_later(cli: Cli, topic: str) -> None:
    """Both brokers have timer messages here; test_cli_old_broker has one that has not."""
    ran = cli("send", topic, "later", "--delay", "2s")
    assert "timer message" in ran.err
    assert cli("tail", topic, "--from", "start", "-e").out == ""
    steps = eventually(lambda: cli("message", "path", topic, ran.lines[0]["msgId"], code=None).lines)
    scheduled = [step for step in steps if step["step"] == "scheduled"]
    assert len(scheduled) == 1, steps
    assert "due" in scheduled[0]["detail"]
    found = eventually(lambda: cli("tail", topic, "--from", "start", "-e").lines)
    assert found[0]["storedMs"] - found[0]["bornMs"] >= 1500


def test_a_timer_message_is_recalled(cli: Cli, topic: str) -> None:
    sent = cli("send", topic, "never", "--delay", "2s", "--property", f"traceparent={PARENT}").lines[0]
    assert "would delete" in cli("timer", "recall", sent["recallHandle"], "--dry-run").err
    assert "--yes" in cli("timer", "recall", sent["recallHandle"], code=2).err
    assert cli("timer", "recall", sent["recallHandle"], "--yes").lines[0]["topic"] == topic
    time.sleep(2.5)
    assert cli("tail", topic, "--from", "start", "-e").out == ""
    assert "handle" in cli("timer", "recall", "nonsense", "--yes", code=2).err


def test_what_waits_is_listed_by_firearrow_only(broker: Peer, cli: Cli, topic: str) -> None:
    group = unique("none")
    if broker.kind == "apache":
        for words in (["timer", "list"], ["tx", "list"], ["queue", "who", group]):
            assert "only FireArrow" in cli(*words, code=2).err
        dead = dead_letter(broker, cli, topic, "kept")
        assert "only FireArrow" in cli("dlq", "drop", dead, "--yes", code=2).err
        return
    late, soon = (cli("send", topic, "x", "--delay", delay).lines[0] for delay in ("2h", "1h"))
    listed = eventually(lambda: cli("timer", "list", "--topic", topic).lines)
    assert [row["msgId"] for row in listed] == [soon["msgId"], late["msgId"]]
    assert listed[0]["recallHandle"] == soon["recallHandle"]
    assert cli("timer", "list", "--topic", topic, "--from", "+90m").lines[0]["msgId"] == late["msgId"]
    assert "more" in cli("timer", "list", "--topic", topic, "--limit", "1").err
    producers = unique("tx")
    half = open_transaction(broker, topic, producers)
    assert [(row["msgId"], row["topic"]) for row in cli("tx", "list", "--group", producers).lines] == [
        (half, topic)
    ]
    assert "in order" in cli("queue", "who", group).err


# ---- message ----


def test_a_message_is_found(cli: Cli, topic: str) -> None:
    sent = cli("send", topic, "needle", "--key", "k1", "--tag", "a").lines[0]
    cli("send", topic, "hay")
    for message_id in (sent["msgId"], sent["offsetMsgId"]):
        assert cli("message", "get", topic, message_id).lines[0]["body"] == "needle"
    assert (
        eventually(lambda: cli("message", "find", topic, "--key", "k1", code=None).lines)[0]["body"]
        == "needle"
    )
    assert cli("message", "find", topic, "--from", "-1m", "--grep", "nee").lines[0]["body"] == "needle"
    assert cli("message", "find", topic, "--from", "-1m", "--tag", "a").lines[0]["body"] == "needle"
    assert cli("message", "find", topic, "--key", "other", code=1).out == ""
    assert cli("message", "find", topic, "--from", "-1m", "--to", "-30s", code=1).out == ""
    assert "--key" in cli("message", "find", topic, code=2).err
    assert "no message" in cli("message", "get", topic, "0" * 32, code=1).err


def test_a_message_is_sent_again(cli: Cli, topic: str) -> None:
    sent = cli("send", topic, "again", "--key", "k", "--property", f"traceparent={PARENT}").lines[0]
    cli("message", "resend", topic, sent["msgId"], "--dry-run")
    assert cli("message", "resend", topic, sent["msgId"], "--yes").lines[0]["msgId"] == sent["msgId"]
    found = cli("tail", topic, "--from", "start", "-e").lines
    assert [(row["body"], row["keys"], row["properties"]["traceparent"]) for row in found] == [
        ("again", ["k"], PARENT)
    ] * 2


def test_one_consumer_gets_it_again(broker: Peer, cli: Cli, topic: str) -> None:
    group, sent = unique("direct"), cli("send", topic, "direct").lines[0]
    program = (
        "import asyncio, sys\n"
        "from firearrow.client import PushConsumer\n"
        "consumer = PushConsumer(sys.argv[1], name_server=sys.argv[2])\n"
        "@consumer.subscribe(sys.argv[3])\n"
        "async def handle(messages):\n"
        "    print(messages[0].body.decode(), flush=True)\n"
        "asyncio.run(consumer.run())\n"
    )
    command = [sys.executable, "-c", program, group, broker.name_server, topic]
    with killing(subprocess.Popen(command, stdout=subprocess.PIPE)) as process:
        assert process.stdout is not None
        resent = eventually(
            lambda: cli("message", "resend", topic, sent["msgId"], "--group", group, "-y", code=None).out
        )
        assert '"CR_SUCCESS"' in resent
        assert process.stdout.readline() == b"direct\n"


def test_the_path_of_a_message_that_was_retried_and_died(broker: Peer, cli: Cli, topic: str) -> None:
    sent = cli("send", topic, "x", "--property", f"traceparent={PARENT}").lines[0]
    group = unique("path")
    seen = consume(broker, group, topic, ConsumeResult.RETRY_LATER, 2, max_reconsume_times=1)
    assert set(seen) == {PARENT}, "retries keep it"
    ran = eventually(
        lambda: (
            (found := cli("message", "path", topic, sent["msgId"], code=None)).code == 1
            and "dead" in found.out
            and found
        )
    )
    steps = {row["step"]: row for row in ran.lines}
    assert steps["stored"]["atMs"] > 0
    assert steps["traceparent"]["detail"] == PARENT
    assert steps["delivered"]["group"] == group
    assert "retry 1, delivered" in steps["retry"]["detail"]
    assert steps["dead"]["group"] == group
    letter = cli("dlq", "show", group).lines[0]
    assert letter["properties"]["traceparent"] == PARENT, "dead letters keep it"


def test_the_path_says_why_not(broker: Peer, cli: Cli, topic: str) -> None:
    group = unique("why")
    cli("send", topic, "first")
    consume(broker, group, topic, ConsumeResult.SUCCESS, 1)
    sent = cli("send", topic, "second").lines[0]
    row = [step for step in cli("message", "path", topic, sent["msgId"], code=1).lines if step["group"]]
    assert [(step["step"], step["group"]) for step in row] == [("not delivered", group)]
    assert "no member" in row[0]["detail"]
    assert "no message" in cli("message", "path", topic, "0" * 32, code=1).err


# ---- dead letters ----


def test_dead_letters_are_redriven_once(broker: Peer, cli: Cli, topic: str) -> None:
    group = dead_letter(broker, cli, topic, "one", "two", "three")
    listed = {row["group"]: row for row in cli("dlq", "list", code=1).lines}
    assert (listed[group]["messages"], listed[group]["left"]) == (3, 3)
    shown = cli("dlq", "show", group).lines
    assert {row["originTopic"] for row in shown} == {topic}
    assert cli("dlq", "redrive", group, "--dry-run").lines == [{"topic": topic, "messages": 3}]
    assert "--yes" in cli("dlq", "redrive", group, code=2).err
    assert cli("dlq", "redrive", group, "--yes", "--limit", "2").lines[0]["sent"] == 2
    assert cli("dlq", "redrive", group, "--yes").lines[0]["sent"] == 1, "it continues"
    assert cli("dlq", "redrive", group, "--yes").out == ""
    found = cli("tail", topic, "--from", "start", "-e").lines
    assert sorted(row["body"] for row in found) == ["one", "one", "three", "three", "two", "two"]
    assert {row["properties"]["traceparent"] for row in found} == {PARENT}
    assert not any("RETRY_TOPIC" in row["properties"] for row in found), "they start again"
    listed = {row["group"]: row for row in cli("dlq", "list", code=None).lines}
    assert (listed[group]["messages"], listed[group]["left"]) == (3, 0)


def test_only_the_group_gets_them_by_its_retry_topic(broker: Peer, cli: Cli, topic: str) -> None:
    group = dead_letter(broker, cli, topic, "one")
    cli("dlq", "redrive", group, "--retry-topic", "--yes")
    assert len(cli("tail", topic, "--from", "start", "-e").lines) == 1
    assert consume(broker, group, topic, ConsumeResult.SUCCESS, 1) == [PARENT]


def test_dead_letters_are_exported(broker: Peer, cli: Cli, topic: str, tmp_path: Path) -> None:
    group = dead_letter(broker, cli, topic, "one")
    row = cli("dlq", "export", group).lines[0]
    assert (row["body"], row["group"], row["originTopic"]) == ("one", group, topic)
    cli("dlq", "export", group, str(tmp_path / "dead.jsonl"))
    assert '"one"' in (tmp_path / "dead.jsonl").read_text()
    assert "cannot write" in cli("dlq", "export", group, str(tmp_path / "dead.jsonl"), code=2).err
    assert "no dead letters" in cli("dlq", "show", unique("none"), code=1).err


def test_dead_letters_are_dropped(broker: Peer, cli: Cli, topic: str) -> None:
    if broker.kind == "apache":
        pytest.skip("it cannot")
    group = dead_letter(broker, cli, topic, "one", "two", "three")
    assert "no such" in cli("dlq", "drop", group, "--redriven", "--yes").err
    cli("dlq", "redrive", group, "--yes", "--limit", "1")
    assert cli("dlq", "drop", group, "--redriven", "--dry-run").lines[0]["trimmed"] == 1
    assert len(cli("dlq", "show", group).lines) == 3, "nothing has changed"
    assert cli("dlq", "drop", group, "--redriven", "--yes").lines[0]["minOffset"] == 1
    assert len(cli("dlq", "show", group).lines) == 2
    assert "no such" in cli("dlq", "drop", group, "--before", "-1h", "--yes").err
    cli("dlq", "drop", group, "--yes")
    assert cli("dlq", "show", group).out == ""
    assert group not in {row["group"] for row in cli("dlq", "list", code=None).lines}


# ---- transactions ----


def test_an_operator_commits_or_rolls_back(broker: Peer, cli: Cli, topic: str) -> None:
    group = unique("tx")
    kept, dropped = (open_transaction(broker, topic, group) for _ in range(2))
    steps = eventually(lambda: cli("message", "path", topic, kept, code=None).lines)
    assert [step["detail"].partition(",")[0] for step in steps] == ["open"]
    assert "would commit" in cli("tx", "commit", kept, "--dry-run").err
    assert cli("tx", "commit", kept, "--yes").lines[0]["state"] == "COMMIT"
    found = eventually(lambda: cli("tail", topic, "--from", "start", "-e").lines)
    assert [(row["body"], row["properties"]["traceparent"]) for row in found] == [("half", PARENT)]
    assert cli("tx", "rollback", dropped, "--yes").lines[0]["state"] == "ROLLBACK"
    eventually(lambda: "has ended" in cli("tx", "commit", dropped, "--dry-run", code=None).err)
    assert "has ended" in cli("tx", "commit", kept, "--yes", code=2).err, "it would come twice"
    assert len(cli("tail", topic, "--from", "start", "-e").lines) == 1
    assert "by itself" in cli("tx", "ask", kept, "--yes", code=2).err
    assert "no broker" in cli("tx", "commit", "0" * 32, "--yes", code=1).err


def test_the_path_has_what_producers_and_consumers_trace(broker: Peer, cli: Cli, topic: str) -> None:
    async def send() -> str:
        options = ProducerOptions(trace=True)
        async with Producer(unique("traced"), name_server=broker.name_server, options=options) as producer:
            return (await producer.send(Message(topic, b"x"))).message_id

    message_id = asyncio.run(send())
    group = unique("traced")
    consume(broker, group, topic, ConsumeResult.SUCCESS, 1, trace=True)

    def traced() -> dict[str, str]:
        rows = cli("message", "path", topic, message_id, code=None).lines
        found = {row["step"]: row["group"] for row in rows}
        return found if {"trace: send", "trace: handled"} <= found.keys() else {}

    steps = eventually(traced)
    assert steps["trace: deliver"] == steps["trace: handled"] == group
