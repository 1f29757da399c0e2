"""`firearrow topic export`, `import` and `copy`: what they keep, and what a killed one leaves for the next."""

import asyncio
import os
import re
import signal
import subprocess
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from firearrow.client.admin_api.admin import Admin
from firearrow.client.base.errors import RequestTimeout
from firearrow.client.base.message import Message, SendResult
from firearrow.client.cli.transfer import forwarding
from firearrow.client.cli.transfer.checkpoint import Positions
from firearrow.client.local_broker import LocalBroker
from firearrow.client.send.producer import Producer
from tests.client.conftest import unique
from tests.client.raw_producer import RawProducer
from tests.client.test_cli_messages import on_terminal
from tests.interop.cli_messages import Cli
from tests.support.command_line import PROGRAM, process
from tests.support.eventually import eventually
from tests.support.fork_server import ForkedCommand

Topics = Callable[..., str]
BODIES = [
    b"text",
    b"\xff\x00binary\n",
    "grüße \U0001f600".encode(),
    b"x" * 5000,
    b"",
    b'{"a": 1}',
    b"\x01\x02",
]
"""Those of one queue: text, other bytes, a body that the client compresses, an empty one."""


@pytest.fixture
def cli(name_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Its checkpoints and contexts are in this test's folder."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return Cli(name_server)


def fill(name_server: str, topic: str, bodies: list[bytes] = BODIES, queues: int = 2) -> None:
    """Send these bodies to each queue, with all that a message may have."""

    async def send() -> None:
        async with Producer("transfer", name_server=name_server) as producer:
            for queue in sorted(await producer.queues(topic))[:queues]:
                for number, body in enumerate(bodies):
                    message = Message(
                        topic,
                        body,
                        tags="ab"[number % 2],
                        keys=(f"k{number}", "all"),
                        properties={"own": f"ü{number}", "queue": str(queue.queue_id)},
                        flag=number,
                        sharding_key="s" if number == 1 else None,
                    )
                    await producer.send(message, queue=queue)

    asyncio.run(send())


def kept(row: dict[str, Any]) -> tuple[Any, ...]:
    """What a copy has of a message."""
    own = {name: value for name, value in row["properties"].items() if not name.startswith("REPLAY_")}
    for name in ("MIN_OFFSET", "MAX_OFFSET", "WAIT", "CLUSTER", "MSG_REGION", "TRACE_ON"):
        own.pop(name, None)
    encoding = row.get("bodyEncoding")
    return (row["queueId"], row["body"], encoding, row["tags"], row["keys"], row["msgId"], row["flag"], own)


def rows_of(cli: Cli, topic: str) -> list[dict[str, Any]]:
    rows = cli("topic", "export", topic, "-").rows
    return sorted(rows, key=lambda row: (row["broker"], row["queueId"], row["offset"]))


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]


def forked(name_server: str, *words: str) -> "ForkedCommand[bytes]":
    return ForkedCommand(["firearrow", *words, "--namesrv", name_server], env=dict(os.environ))


# ---- whole ----


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_an_export_is_imported_with_everything(
    cli: Cli, topics: Topics, name_server: str, tmp_path: Path, suffix: str
) -> None:
    source, target, file = topics(queues=2), unique("import"), tmp_path / f"orders.{suffix}"
    fill(name_server, source)
    done = cli("topic", "export", source, str(file)).rows[0]
    assert (done["messages"], done["missing"], done["damaged"]) == (14, 0, 0)
    assert done["fileCrc"] == zlib.crc32(file.read_bytes())
    assert sorted(each.name for each in tmp_path.iterdir() if each.is_file()) == [
        file.name,
        f"{file.name}.manifest",
    ]
    assert "--create-topics creates it" in cli("topic", "import", target, str(file), code=2).err
    done = cli("topic", "import", target, str(file), "--create-topics").rows[0]
    assert (done["sent"], done["verified"], done["duplicates"], done["crc"]) == (14, 14, 0, "ok")
    assert list(map(kept, rows_of(cli, target))) == list(map(kept, rows_of(cli, source)))
    again = cli("topic", "import", target, str(file))
    assert (again.out, "was imported already" in again.err) == ("", True)
    assert cli("topic", "import", target, str(file), "--again").rows[0]["verified"] == 14
    assert "exists" in cli("topic", "export", source, str(file), code=2).err


def test_a_copy_has_everything_and_continues(cli: Cli, topics: Topics, name_server: str) -> None:
    source, target = topics(queues=2), topics(queues=2)
    fill(name_server, source)
    done = cli("topic", "copy", source, target).rows[0]
    assert (done["sent"], done["verified"], done["crc"]) == (14, 14, "ok")
    copied = rows_of(cli, target)
    assert list(map(kept, copied)) == list(map(kept, rows_of(cli, source)))
    assert {row["properties"]["REPLAY_TOPIC"] for row in copied} == {source}
    assert "nothing has come" in cli("topic", "copy", source, target).err
    fill(name_server, source, [b"later"])
    assert cli("topic", "copy", source, target).rows[0]["sent"] == 2
    assert [row["body"] for row in rows_of(cli, target)].count("later") == 2
    assert cli("topic", "copy", source, target, "--again").rows[0]["sent"] == 16


def test_a_copy_between_contexts(cli: Cli, topics: Topics, name_server: str) -> None:
    source = topics(queues=2)
    fill(name_server, source)
    with LocalBroker() as other:
        cli("context", "add", "home", "--namesrv", name_server)
        cli("context", "add", "away", "--namesrv", other.name_server)
        assert "--create-topics" in cli("topic", "copy", f"home:{source}", "away:", code=2).err
        done = cli("topic", "copy", f"home:{source}", "away:", "--create-topics", "--tag", "a").rows[0]
        assert (done["topic"], done["sent"], done["verified"]) == (source, 8, 8)
        rows = Cli(other.name_server)("topic", "export", source, "-").rows
        assert {row["tags"] for row in rows} == {"a"}
        done = cli("topic", "copy", source, "copied", "--target", other.name_server, "--create-topics").rows[
            0
        ]
        assert done["verified"] == 14
        assert "no context 'nowhere'" in cli("topic", "copy", f"nowhere:{source}", "away:", code=2).err
        assert "not both" in cli("topic", "copy", source, "away:", "--target", "a:1", code=2).err
    assert "the same topic" in cli("topic", "copy", source, source, code=2).err


@pytest.mark.parametrize(
    ("choice", "numbers"),
    [
        (["--key", "k1", "--key", "k3"], {1, 3}),
        (["--tag", "b"], {1, 3, 5}),
        (["--grep", "^text|a"], {0, 1, 5}),
        (["--from", "5"], {5, 6}),
        (["--to", "-1h"], set()),
        (["--from", "-1h", "--until", "+1h", "--limit", "4"], None),
        (["--rate", "100000", "--bytes-rate", "100000000"], set(range(7))),
    ],
)
def test_choices(
    cli: Cli, topics: Topics, name_server: str, tmp_path: Path, choice: list[str], numbers: set[int] | None
) -> None:
    source, target = topics(queues=2), topics(queues=2)
    fill(name_server, source)
    cli("topic", "export", source, str(tmp_path / "f"), *choice)
    cli("topic", "copy", source, target, *choice)
    for rows in (lines_of(tmp_path / "f"), rows_of(cli, target)):
        if numbers is None:
            assert len(rows) == 4
        else:
            assert {row["flag"] for row in rows} == numbers
            assert len(rows) == 2 * len(numbers)
    assert "--from takes start" in cli("topic", "copy", source, target, "--from", "-3", code=2).err


def test_lines_of_other_commands_and_hands(
    cli: Cli, topics: Topics, name_server: str, tmp_path: Path
) -> None:
    source, target = topics(queues=2), topics(queues=2)
    fill(name_server, source)
    (tmp_path / "tail").write_text(cli("tail", source, "--from", "start", "-e").out)
    assert cli("topic", "import", target, str(tmp_path / "tail")).rows[0]["verified"] == 14
    hand = topics(queues=2)
    lines = [
        '{"body": "plain"}',
        "",
        '{"body": "aGk=", "bodyEncoding": "base64", "keys": ["k"], "properties": {"p": "1", "DELAY": "3"}}',
        '{"body": {"a": [1]}, "bodyEncoding": "json", "tags": "t"}',
        "no json",
        "[1]",
        '{"body": 5}',
        '{"body": "?", "bodyEncoding": "base64"}',
        '{"body": "edited", "bodyCrc": 1}',
        '{"body": "x", "queueId": -1}',
        '{"body": "x", "properties": {"p": 1}}',
        '{"properties": {}}',
        '{"body": "last"}',
    ]
    (tmp_path / "hand").write_text("\n".join(lines) + "\n")
    ran = cli("topic", "import", hand, str(tmp_path / "hand"), code=1)
    assert (ran.lines[0]["sent"], ran.lines[0]["refused"], ran.lines[0]["verified"]) == (4, 8, 4)
    assert "hand: line 5 was not sent: it is not JSON" in ran.err
    again = cli("topic", "import", hand, str(tmp_path / "hand"), code=1)
    assert "8 of its messages were not sent" in again.err
    rows = rows_of(cli, hand)
    assert sorted(row["body"] for row in rows) == ["hi", "last", "plain", '{"a":[1]}']
    assert not any("DELAY" in row["properties"] for row in rows), "it is not delayed again"
    (tmp_path / "crc").write_text('{"body": "edited", "bodyCrc": 1}\n')
    assert cli("topic", "import", hand, str(tmp_path / "crc"), "--no-check-crc").rows[0]["sent"] == 1


def test_a_pipe(cli: Cli, topics: Topics, name_server: str) -> None:
    source, target = topics(queues=2), topics(queues=2)
    fill(name_server, source)
    lines = cli("topic", "export", source, "-", "--tag", "a").out
    ran = process("topic", "import", target, "-", name_server=name_server, stdin=lines)
    assert ran.rows[0]["verified"] == 8
    assert process("topic", "import", target, "-", name_server=name_server, stdin="").rows[0]["sent"] == 0


def test_a_file_that_changed(cli: Cli, topics: Topics, name_server: str, tmp_path: Path) -> None:
    source, target, file = topics(queues=2), topics(queues=2), tmp_path / "f"
    fill(name_server, source)
    cli("topic", "export", source, str(file))
    file.write_bytes(file.read_bytes().replace(b'"text"', b'"TEXT"', 1))
    assert "is not the file that was exported" in cli("topic", "import", target, str(file), code=2).err
    ran = cli("topic", "import", target, str(file), "--no-verify", code=1)
    assert ran.lines[0]["refused"] == 1
    file.write_bytes(file.read_bytes() + b'{"body": "more"}\n')
    assert "has changed since" in cli("topic", "import", target, str(file), "--no-verify", code=2).err
    assert "cannot read" in cli("topic", "import", target, str(tmp_path / "none"), code=2).err
    assert "is a folder" in cli("topic", "import", target, str(tmp_path), code=2).err
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 no")
    assert "cannot read" in cli("topic", "import", target, str(tmp_path / "bad.parquet"), code=2).err


def test_without_pyarrow(cli: Cli, topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow.parquet", None)
    refused = cli("topic", "export", topics(), str(tmp_path / "f.parquet"), code=2).err
    assert "pip install pyarrow" in refused


def test_a_copied_dead_letter_can_be_redriven(
    cli: Cli, topics: Topics, feeder: RawProducer, name_server: str
) -> None:
    origin, source, target = topics(), f"%DLQ%{unique('s')}", f"%DLQ%{unique('t')}"
    for name in (source, target):
        asyncio.run(create(name_server, name))
    feeder.feed(source, [b"dead"], RETRY_TOPIC=origin, UNIQ_KEY="A" * 32)
    assert cli("topic", "copy", source, target).rows[0]["verified"] == 1
    group = target.removeprefix("%DLQ%")
    assert cli("dlq", "redrive", group, "--yes").rows[0]["sent"] == 1
    assert [row["body"] for row in rows_of(cli, origin)] == ["dead"]


async def create(name_server: str, topic: str) -> None:
    async with Admin(name_server) as admin:
        await admin.create_topic(topic, 1)


@pytest.mark.parametrize("verb", ["export", "copy", "import"])
def test_a_bar_on_a_terminal_only(
    cli: Cli, filled: str, topics: Topics, name_server: str, tmp_path: Path, verb: str
) -> None:
    target, file = topics(queues=2), tmp_path / "f"
    quiet = cli("topic", "export", filled, str(file))
    assert quiet.err == ""
    words = {
        "export": ["export", filled, str(tmp_path / "new")],
        "copy": ["copy", filled, target],
        "import": ["import", target, str(file)],
    }[verb]
    shown = on_terminal(name_server, "topic", *words, "--rate", "20000").decode()
    name = "f" if verb == "import" else filled
    assert re.search(rf"{verb} {name} (\[#* *\])? +\d+% [\d,]+ of 3,000 messages, [\d,]+/s", shown)
    more = ["--again"] if verb != "export" else []
    words[-1] = f"{words[-1]}-2" if verb == "export" else words[-1]
    assert f"{verb} {name} [" not in on_terminal(name_server, "topic", *words, "--quiet", *more).decode()


# ---- killed ----

COUNT = 3000


@pytest.fixture
def filled(topics: Topics, name_server: str) -> str:
    """A topic with COUNT numbered messages in two queues."""
    topic = topics(queues=2)

    async def send() -> None:
        async with Producer("transfer", name_server=name_server) as producer:
            queues = sorted(await producer.queues(topic))
            for number, queue in enumerate(queues):
                batch = [Message(topic, b"%d" % each, flag=each) for each in range(number, COUNT, 2)]
                for start in range(0, len(batch), 500):
                    await producer.send_batch(batch[start : start + 500], queue=queue)

    asyncio.run(send())
    return topic


def in_order(rows: list[dict[str, Any]]) -> None:
    """All messages, each once, and each queue in its order."""
    for queue_id in (0, 1):
        assert [row["flag"] for row in rows if row["queueId"] == queue_id] == list(range(queue_id, COUNT, 2))


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_a_killed_export_continues(
    cli: Cli, filled: str, name_server: str, tmp_path: Path, suffix: str
) -> None:
    file = tmp_path / f"f.{suffix}"
    part, progress = tmp_path / f"{file.name}.part", tmp_path / f"{file.name}.progress"
    words = ["topic", "export", filled, str(file)]
    for least in (400, 1500):
        with forked(name_server, *words, "--rate", "600") as process:
            eventually(
                lambda least=least: (
                    progress.exists()
                    and orjson.loads(progress.read_bytes())["state"]["written"]["messages"] >= least
                )
            )
            assert "another topic export is running" in cli(*words, code=2).err
            process.send_signal(signal.SIGKILL)
            process.wait(30)
        assert not file.exists()
    with part.open("ab") as tail:
        tail.write(b'{"cut off')
    assert "other arguments" in cli(*words, "--tag", "x", code=2).err
    assert cli(*words).rows[0]["messages"] == COUNT
    rows = lines_of(file) if suffix == "jsonl" else parquet_lines(file)
    in_order(sorted(rows, key=lambda row: row["offset"]))
    assert not part.exists()
    assert not progress.exists()


def test_a_full_disk(cli: Cli, filled: str, name_server: str, tmp_path: Path) -> None:
    file = tmp_path / "f"
    words = ["topic", "export", filled, str(file)]
    limited = ["sh", "-c", 'ulimit -f 500 && exec "$@"', "sh", *PROGRAM, *words, "--namesrv", name_server]
    ran = subprocess.run(limited, capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, "File too large; the same command continues" in ran.stderr) == (1, True), (
        ran.stderr
    )
    assert not file.exists()
    assert cli(*words).rows[0]["messages"] == COUNT
    in_order(sorted(lines_of(file), key=lambda row: row["offset"]))


def parquet_lines(file: Path) -> list[dict[str, Any]]:
    import pyarrow.parquet as pq  # noqa: PLC0415 (slow)

    return [row | {"offset": row["queueOffset"]} for row in pq.read_table(file).to_pylist()]


@pytest.mark.parametrize("verb", ["copy", "import"])
def test_a_killed_one_sends_none_twice(
    cli: Cli, filled: str, topics: Topics, name_server: str, tmp_path: Path, verb: str
) -> None:
    target, file, checkpoint = topics(queues=2), tmp_path / "f", tmp_path / "checkpoint"
    cli("topic", "export", filled, str(file))
    words = ["topic", verb, *([filled, target] if verb == "copy" else [target, str(file)])]
    words += ["--checkpoint", str(checkpoint)]
    for least in (1, 800):
        with forked(name_server, *words, "--rate", "600") as process:
            eventually(
                lambda least=least: (
                    checkpoint.exists()
                    and orjson.loads(checkpoint.read_bytes())["state"]["totals"]["sent"] >= least
                )
            )
            assert f"another topic {verb} is running" in cli(*words, code=2).err
            process.send_signal(signal.SIGKILL)
            process.wait(30)
    done = cli(*words).rows[0]
    assert (done["sent"], done["verified"], done["duplicates"], done["crc"]) == (COUNT, COUNT, 0, "ok")
    in_order(rows_of(cli, target))


@pytest.mark.parametrize("provenance", [True, False])
def test_lost_answers_are_found_or_reported(
    cli: Cli, filled: str, topics: Topics, monkeypatch: pytest.MonkeyPatch, provenance: bool
) -> None:
    """A request is stored, and its answer is lost: the run goes on by itself."""
    send_batch, sends = Producer.send_batch, 0

    async def lossy(producer: Producer, messages: Any, **more: Any) -> SendResult:  # noqa: ANN401
        nonlocal sends
        sends += 1
        result = await send_batch(producer, messages, **more)
        if sends in (2, 5):
            raise RequestTimeout("no answer")
        return result

    target = topics(queues=2)
    monkeypatch.setattr(Producer, "send_batch", lossy)
    words = [] if provenance else ["--no-provenance"]
    ran = cli("topic", "copy", filled, target, *words)
    assert "no answer; trying again" in ran.err
    if provenance:
        assert ran.rows[0]["foundSent"] > 0
        assert (ran.rows[0]["verified"], ran.rows[0]["duplicates"]) == (COUNT, 0)
        in_order(rows_of(cli, target))
    else:
        assert "may be there twice" in ran.err
        assert ran.rows[0]["maybeTwice"] >= len(rows_of(cli, target)) - COUNT > 0


def test_what_is_missing_is_reported(cli: Cli, filled: str, topics: Topics, tmp_path: Path) -> None:
    target = topics(queues=2)
    cli("topic", "trim", filled, "--offset", "100", "--yes")
    ran = cli("topic", "export", filled, str(tmp_path / "f"), "--from", "0")
    assert ran.rows[0]["messages"] == COUNT - 200, "what was deleted before is not missing"
    checkpoint = tmp_path / "c"
    words = ["topic", "copy", filled, target, "--checkpoint", str(checkpoint), "--limit", "500"]
    cli(*words)
    cli("topic", "trim", filled, "--offset", "1000", "--yes")
    ran = cli(*words, code=1)
    assert "were deleted before they could be read" in ran.err
    assert ran.lines[0]["missing"] > 0


def test_namespaces_are_clusters_of_their_own(cli: Cli, name_server: str, tmp_path: Path) -> None:
    topic, file = unique("same"), tmp_path / "f"
    for number, space in enumerate(("one", "two"), 1):
        cli("context", "add", space, "--namesrv", name_server, "--namespace", space)
        cli("topic", "create", topic, "--queues", "2", "--context", space)
        fill(name_server, f"{space}%{topic}", [space.encode()] * number)
    assert cli("topic", "copy", f"one:{topic}", f"two:{topic}").rows[0]["sent"] == 2
    for space, sent in (("one", 2), ("two", 6)):
        copied = cli(
            "topic", "copy", f"{space}:{topic}", f"{topic}-all", "--target", name_server, "--create-topics"
        )
        assert copied.rows[0]["sent"] == sent
    cli("topic", "export", topic, str(file), "--context", "one")
    for space in ("one", "two"):
        assert cli("topic", "import", topic, str(file), "--context", space).rows[0]["sent"] == 2


def test_a_topic_is_not_copied_to_itself(cli: Cli, filled: str, name_server: str) -> None:
    for server in (name_server, f"{name_server};127.0.0.1:1", name_server.replace("127.0.0.1", "localhost")):
        ran = cli("topic", "copy", filled, filled, "--target", server, code=2)
        assert "are the same topic" in ran.err, ran


def test_a_later_copy_without_a_broker_keeps_its_place(
    cli: Cli, filled: str, topics: Topics, name_server: str, tmp_path: Path
) -> None:
    target, checkpoint = topics(queues=2), tmp_path / "c"
    words = ["topic", "copy", filled, target, "--checkpoint", str(checkpoint)]
    cli(*words)
    whole = orjson.loads(checkpoint.read_bytes())
    whole["state"]["plan"]["positions"]["away/0"] = {"next": 3, "beyond": []}
    checkpoint.write_bytes(orjson.dumps(whole))
    fill(name_server, filled, [b"more"])
    assert cli(*words).rows[0]["sent"] == 2
    positions = orjson.loads(checkpoint.read_bytes())["state"]["plan"]["positions"]
    assert positions["away/0"]["next"] == 3


@pytest.mark.parametrize("side", ["source", "target"])
def test_a_broker_that_is_away_has_lost_nothing(
    cli: Cli, filled: str, topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, side: str
) -> None:
    """Its queues are not in the route while it is away: that was taken for the loss of all that they had."""
    monkeypatch.setattr(forwarding, "RETRY_S", 1.5)
    monkeypatch.setattr(forwarding, "SETTLE_S", 0.1)
    target, checkpoint = topics(queues=2), tmp_path / "c"
    words = ["topic", "copy", filled, target, "--checkpoint", str(checkpoint)]
    cli(*words, "--limit", "10")
    whole = orjson.loads(checkpoint.read_bytes())
    state = whole["state"] | {"done": False}
    if side == "source":
        state["plan"]["ends"]["away/0"] = 7
        state["plan"]["positions"]["away/0"] = {"next": 3, "beyond": []}
        state["first"]["away/0"] = 3
    else:
        state["floors"]["away/0"] = 7
    checkpoint.write_bytes(orjson.dumps(whole | {"state": state}))
    ran = cli(*words, "--limit", "10", code=3)
    assert "broker away, which has messages of" in ran.err
    assert not orjson.loads(checkpoint.read_bytes())["state"]["done"]


def test_queues_that_cannot_be_read(cli: Cli, topics: Topics, name_server: str, tmp_path: Path) -> None:
    """Messages beyond the read queues are not in the file: the export reports them, and fails."""
    topic, target, file = topics(queues=4), topics(), tmp_path / "f"
    fill(name_server, topic, [b"1", b"2"], queues=4)
    words = ["--queues", "4", "--read-queues", "3", "--force", "--yes"]
    cli("topic", "set", topic, *words)
    for verb in (["export", topic, str(file)], ["copy", topic, target], ["export", topic, "-"]):
        ran = cli("topic", *verb, code=1)
        assert "2 messages are in queues that no client may read (broker-a/3)" in ran.err
        if verb[-1] != "-":
            assert ran.lines[0]["unreadable"] == 2
    assert len(lines_of(file)) == 6


def test_what_is_missing_is_counted_once() -> None:
    """Though a run reads past a hole before what is before it was sent, and the next one reads it again."""
    lost: list[tuple[int, int, int]] = []

    def note(start: int, end: int, number: int) -> None:
        lost.append((start, end, number))

    first = Positions(0, lost=note)
    first.done(1, 5)
    first.passed(3, 5)
    assert lost == [], "0 and 2 are under way"
    again = Positions.of(first.saved())
    again.lost = note
    again.passed(3, 5)
    again.done(0, 2)
    assert (lost, again.next) == ([(3, 5, 2)], 6)
    again.done(8)
    again.passed(6, 12)
    assert (lost[1:], again.saved()) == ([(6, 12, 5)], {"next": 12, "beyond": []}), "8 was there"


def test_a_topic_that_was_created_again(cli: Cli, filled: str, topics: Topics, name_server: str) -> None:
    target = topics(queues=2)
    cli("topic", "copy", filled, target)
    cli("topic", "delete", filled, "--yes")
    cli("topic", "create", filled, "--queues", "2")
    fill(name_server, filled, [b"new"])
    assert "was created again; --again" in cli("topic", "copy", filled, target, code=2).err
    assert cli("topic", "copy", filled, target, "--again").rows[0]["sent"] == 2
