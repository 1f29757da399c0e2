"""Dead letters by choice: redriven, edited, dropped and exported; receipts, and what an interrupted redrive leaves."""

import asyncio
import os
import signal
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from firearrow._native.protocol.name_rules import dlq_topic, retry_topic
from firearrow._native.wire.codes import RequestCode
from firearrow.client.admin_api.admin import Admin
from firearrow.client.base.errors import RequestTimeout
from firearrow.client.base.message import Message, SendResult
from firearrow.client.send.producer import Producer
from tests.client.conftest import unique
from tests.client.raw_producer import RawProducer
from tests.interop.cli_messages import Cli
from tests.support.eventually import eventually
from tests.support.fork_server import ForkedCommand

Topics = Callable[..., str]
Letters = Callable[..., tuple[str, str]]
COUNT = 6
SEND = Producer.send


@pytest.fixture
def cli(name_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Its receipts are in this test's folder."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return Cli(name_server)


@pytest.fixture
def letters(name_server: str, topics: Topics, feeder: RawProducer) -> Letters:
    """`letters(b"one", b"two")`: a group with these dead letters, and the topic they came from. Letter N has the key
    kN, the tag a or b in turn, and an id that ends with N."""

    def make(*bodies: bytes) -> tuple[str, str]:
        topic, group = topics(), unique("dead")

        async def create() -> None:
            async with Admin(name_server) as admin:
                await admin.create_topic(dlq_topic(group), 1)

        asyncio.run(create())
        for number, body in enumerate(bodies):
            feeder.feed(
                dlq_topic(group),
                [body],
                tag="ab"[number % 2],
                KEYS=f"k{number}",
                UNIQ_KEY=id_of(number),
                RETRY_TOPIC=topic,
                own=f"p{number}",
            )
        return group, topic

    return make


def id_of(number: int) -> str:
    return f"7F{number:030X}"


def bodies(cli: Cli, topic: str) -> list[str]:
    return [row["body"] for row in cli("tail", topic, "--from", "start", "-e").rows]


def receipts(cli: Cli, group: str, code: int = 0) -> dict[str, dict[str, Any]]:
    return {row["msgId"]: row for row in cli("dlq", "receipts", group, code=code).lines}


def left(cli: Cli, group: str) -> int:
    return {row["group"]: row["left"] for row in cli("dlq", "list", code=None).lines}[group]


# ---- by choice ----


@pytest.mark.parametrize(
    ("choice", "numbers"),
    [
        (["--key", "k1", "--key", "k4"], [1, 4]),
        (["--tag", "b"], [1, 3, 5]),
        (["--tag", "a || c"], [0, 2, 4]),
        (["--grep", "[23]$"], [2, 3]),
        (["--ids", f"{id_of(5)},{id_of(0).lower()}"], [0, 5]),
        (["--from", "4"], [4, 5]),
        (["--from", "-2"], [4, 5]),
        (["--from", "-1h", "--tag", "a", "--limit", "2"], [0, 2]),
        (["--to", "-1h"], []),
        (["--until", "+1h", "--key", "k3"], [3]),
    ],
)
def test_each_verb_takes_the_same_choices(
    cli: Cli, letters: Letters, tmp_path: Path, choice: list[str], numbers: list[int]
) -> None:
    group, topic = letters(*(b"body %d" % number for number in range(COUNT)))
    expected = [f"body {number}" for number in numbers]
    assert [row["body"] for row in cli("dlq", "show", group, *choice).rows] == expected
    cli("dlq", "export", group, str(tmp_path / "dead.jsonl"), *choice)
    exported = [orjson.loads(line) for line in (tmp_path / "dead.jsonl").read_text().splitlines()]
    assert [row["body"] for row in exported] == expected
    cli("dlq", "redrive", group, *choice, "--yes")
    assert sorted(bodies(cli, topic)) == expected
    assert sorted(receipts(cli, group)) == [id_of(number) for number in numbers]


def test_ids_of_a_file_and_of_the_origin(cli: Cli, letters: Letters, tmp_path: Path) -> None:
    group, topic = letters(b"0", b"1", b"2")
    rows = cli("dlq", "show", group).rows
    (tmp_path / "ids").write_text(f"{id_of(0)}\n\n{rows[2]['offsetMsgId']}\n")
    cli("dlq", "redrive", group, "--ids", f"@{tmp_path / 'ids'}", "--yes")
    assert sorted(bodies(cli, topic)) == ["0", "2"]
    assert "cannot read" in cli("dlq", "redrive", group, "--ids", "@/nowhere", "--yes", code=2).err
    assert "names no id" in cli("dlq", "redrive", group, "--ids", " ,", "--yes", code=2).err


def test_ids_that_no_letter_has(cli: Cli, letters: Letters, tmp_path: Path) -> None:
    group, topic = letters(b"0", b"1")
    words = ["--ids", f"{id_of(1)},NOWHERE"]
    for verb, more in (
        ("show", []),
        ("export", [str(tmp_path / "f")]),
        ("redrive", ["--dry-run"]),
        ("drop", ["--dry-run"]),
    ):
        assert "not found: NOWHERE" in cli("dlq", verb, group, *more, *words, code=1).err
    assert cli("dlq", "redrive", group, *words, "--yes", code=1).lines[0]["sent"] == 1
    assert bodies(cli, topic) == ["1"]
    assert "not found: NOWHERE" in cli("dlq", "redrive", group, *words, "--yes", code=1).err


def test_what_was_sent_by_choice_is_not_sent_again(cli: Cli, letters: Letters) -> None:
    group, topic = letters(b"0", b"1", b"2", b"3")
    done = cli("dlq", "redrive", group, "--key", "k2", "--yes").lines[0]
    assert done["sent"] == 1
    assert left(cli, group) == 4, "those before it are not done"
    assert cli("dlq", "redrive", group, "--dry-run").lines == [{"topic": topic, "messages": 3}]
    done = cli("dlq", "redrive", group, "--yes").lines[0]
    assert (done["sent"], done["sentBefore"]) == (3, 1)
    assert sorted(bodies(cli, topic)) == ["0", "1", "2", "3"]
    assert left(cli, group) == 0
    assert "no such" in cli("dlq", "redrive", group, "--key", "k2", "--yes").err
    assert cli("dlq", "redrive", group, "--key", "k2", "--again", "--yes").lines[0]["sent"] == 1
    states = {row["msgId"]: row["state"] for row in cli("dlq", "show", group).rows}
    assert states == {id_of(number): "sent" for number in range(4)}


def test_the_progress_at_the_broker_counts_without_receipts(
    cli: Cli, letters: Letters, tmp_path: Path
) -> None:
    group, topic = letters(b"0", b"1", b"2")
    cli("dlq", "redrive", group, "--limit", "2", "--yes")
    elsewhere = ["--receipts", str(tmp_path / "other.jsonl")]
    done = cli("dlq", "redrive", group, "--grep", ".", "--yes", *elsewhere).lines[0]
    assert (done["sent"], done["sentBefore"]) == (1, 2)
    assert sorted(bodies(cli, topic)) == ["0", "1", "2"]


def test_a_rate(cli: Cli, letters: Letters) -> None:
    group, _ = letters(b"0", b"1", b"2")
    began_s = time.monotonic()
    cli("dlq", "redrive", group, "--rate", "10", "--yes")
    assert time.monotonic() - began_s >= 0.2


# ---- edits ----


def test_edits_by_options(cli: Cli, letters: Letters) -> None:
    group, topic = letters(b'{"price": -1}', b"other")
    words = ["--key", "k0", "--property", "own=new", "--property", "TAGS=fixed", "--property", "KEYS=x y"]
    words += ["--filter", "sed s/-1/1/", "--remove-property", "nothing"]
    assert cli("dlq", "redrive", group, *words, "--dry-run").lines == [{"topic": topic, "messages": 1}]
    cli("dlq", "redrive", group, *words, "--yes")
    row = cli("tail", topic, "--from", "start", "-e").rows[0]
    assert (row["body"], row["tags"], row["keys"]) == ('{"price": 1}', "fixed", ["x", "y"])
    assert (row["properties"]["own"], row["msgId"]) == ("new", id_of(0))


def test_a_new_body_is_for_one_letter(cli: Cli, letters: Letters, tmp_path: Path) -> None:
    group, topic = letters(b"bad", b"worse")
    assert "--body is for one letter" in cli("dlq", "redrive", group, "--body", "x", "--yes", code=2).err
    (tmp_path / "body").write_bytes(b"\x00\xff")
    cli("dlq", "redrive", group, "--ids", id_of(1), "--body", f"@{tmp_path / 'body'}", "--yes")
    row = cli("tail", topic, "--from", "start", "-e", "--decode", "hex").rows[0]
    assert row["body"] == "00ff"


def test_a_filter_that_fails_sends_nothing(cli: Cli, letters: Letters) -> None:
    group, topic = letters(b"0", b"1")
    ran = cli("dlq", "redrive", group, "--filter", "grep 1", "--yes", code=1)
    assert f"{id_of(0)} was not sent: --filter ended with exit code 1" in ran.err
    assert (ran.lines[0]["sent"], ran.lines[0]["failed"]) == (1, 1)
    assert bodies(cli, topic) == ["1\n"]
    assert receipts(cli, group, code=1)[id_of(0)]["state"] == "failed"
    assert cli("dlq", "redrive", group, "--yes").lines[0]["sent"] == 1, "the next one takes it"


def test_a_topic_that_takes_nothing_stops_no_other(
    cli: Cli, letters: Letters, topics: Topics, feeder: RawProducer
) -> None:
    group, topic = letters(b"0")
    closed = topics()
    cli("topic", "set", closed, "--perm", "r", "--yes")
    feeder.feed(dlq_topic(group), [b"closed"], RETRY_TOPIC=closed, UNIQ_KEY=id_of(8))
    feeder.feed(dlq_topic(group), [b"2"], RETRY_TOPIC=topic, UNIQ_KEY=id_of(9))
    ran = cli("dlq", "redrive", group, "--yes", code=1)
    assert (ran.lines[0]["sent"], ran.lines[0]["failed"]) == (2, 1)
    assert f"{id_of(8)} was not sent" in ran.err
    assert sorted(bodies(cli, topic)) == ["0", "2"]
    cli("topic", "set", closed, "--perm", "rw", "--yes")
    assert cli("dlq", "redrive", group, "--yes").lines[0]["sent"] == 1


@pytest.mark.parametrize("name", ["RETRY_TOPIC", "UNIQ_KEY", "DELAY", "TRAN_MSG"])
def test_what_brokers_set_is_not_edited(cli: Cli, name: str) -> None:
    assert "set by brokers" in cli("dlq", "redrive", "g", "--property", f"{name}=1", "--yes", code=2).err
    assert "set by brokers" in cli("dlq", "redrive", "g", "--remove-property", name, "--yes", code=2).err


def test_an_editor(cli: Cli, letters: Letters, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It changes the first, leaves the second as it is, skips the third, and writes no JSON for the fourth."""
    group, topic = letters(b"0", b"\xff", b"2", b"3")
    script = tmp_path / "editor"
    script.write_text(
        "#!/bin/sh\n"
        'grep -q \'"k0"\' $1 && sed -i \'s/"body": "0"/"body": "new"/\' $1\n'
        "grep -q '\"k2\"' $1 && : > $1\n"
        "grep -q '\"k3\"' $1 && echo no > $1\n"
        "exit 0\n"
    )
    script.chmod(0o700)
    monkeypatch.setenv("VISUAL", str(script))
    ran = cli("dlq", "redrive", group, "--edit", "--yes", code=1)
    assert (ran.lines[0]["sent"], ran.lines[0]["leftOut"], ran.lines[0]["failed"]) == (2, 1, 1)
    rows = cli("tail", topic, "--from", "start", "-e", "--decode", "hex").rows
    assert sorted(row["body"] for row in rows) == [b"new".hex(), "ff"]


def test_another_topic(cli: Cli, letters: Letters, topics: Topics) -> None:
    group, topic = letters(b"0")
    other = topics()
    assert (
        "not both" in cli("dlq", "redrive", group, "--to-topic", other, "--retry-topic", "--yes", code=2).err
    )
    assert "SOURCE=NAME once" in cli("dlq", "redrive", group, "--to-topic", "=x", "--yes", code=2).err
    cli("dlq", "redrive", group, "--to-topic", f"{topic}={other}", "--yes")
    assert (bodies(cli, other), bodies(cli, topic)) == (["0"], [])


def test_letters_of_an_unknown_topic_are_not_done(cli: Cli, letters: Letters, feeder: RawProducer) -> None:
    group, topic = letters(b"0")
    feeder.feed(dlq_topic(group), [b"1"], UNIQ_KEY=id_of(8))
    ran = cli("dlq", "redrive", group, "--yes", code=1)
    assert (ran.lines[0]["sent"], ran.lines[0]["withoutTopic"]) == (1, 1)
    assert f"{id_of(8)}: its topic is unknown" in ran.err
    assert left(cli, group) == 1
    assert cli("dlq", "redrive", group, "--to-topic", topic, "--yes").lines[0]["sent"] == 1
    assert (left(cli, group), sorted(bodies(cli, topic))) == (0, ["0", "1"])


# ---- receipts ----


def test_a_receipt_says_where_the_letter_is(cli: Cli, letters: Letters) -> None:
    group, topic = letters(b"0")
    path = Path(cli("dlq", "redrive", group, "--yes").lines[0]["receipts"])
    row = receipts(cli, group)[id_of(0)]
    sent = cli("tail", topic, "--from", "start", "-e").rows[0]
    assert (row["topic"], row["toBroker"], row["toQueueId"], row["toOffset"], row["status"]) == (
        *(topic, sent["broker"], sent["queueId"], sent["offset"]),
        "SEND_OK",
    )
    assert sent["properties"]["REPLAY_OFFSET"] == "0"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert b'"0"' not in path.read_bytes(), "bodies are not in it"


def test_a_file_that_is_none(cli: Cli, letters: Letters, tmp_path: Path) -> None:
    group, _ = letters(b"0")
    wrong = tmp_path / "wrong"
    wrong.write_text('{"a": 1}\n')
    refused = cli("dlq", "redrive", group, "--receipts", str(wrong), "--yes", code=2).err
    assert "line 1 is not a receipt" in refused
    assert wrong.read_text() == '{"a": 1}\n'
    refused = cli("dlq", "redrive", group, "--receipts", "/proc/nothing", "--yes", code=2).err
    assert "cannot use /proc/nothing" in refused


def test_a_killed_redrive_sends_none_twice(
    cli: Cli, letters: Letters, name_server: str, tmp_path: Path
) -> None:
    """It is killed while letters are noted as being sent; the next one finds those that were."""
    count = 200
    group, topic = letters(*(b"%d" % number for number in range(count)))
    path = tmp_path / "receipts.jsonl"
    words = ["dlq", "redrive", group, "--yes", "--rate", "100", "--receipts", str(path)]
    with ForkedCommand(["firearrow", *words, "--namesrv", name_server], env=dict(os.environ)) as process:
        eventually(lambda: path.exists() and path.read_bytes().count(b'"sent"') >= 40)
        process.send_signal(signal.SIGKILL)
        process.wait(30)
    with path.open("ab") as file:
        file.write(b'{"atMs": 17')  # as a kill in the middle of a line
    assert cli("dlq", "receipts", group, "--receipts", str(path), code=1).lines
    done = cli("dlq", "redrive", group, "--yes", "--receipts", str(path)).lines[0]
    assert "maybeTwice" not in done
    assert sorted(map(int, bodies(cli, topic))) == list(range(count))
    rows = cli("dlq", "receipts", group, "--receipts", str(path)).rows
    assert (len(rows), {row["state"] for row in rows}) == (count, {"sent"})


def test_an_answer_that_is_missing(cli: Cli, letters: Letters, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker stores the second letter, and the producer does not learn it."""
    send, sends = Producer.send, 0

    async def lossy(producer: Producer, message: Message, **more: Any) -> SendResult:  # noqa: ANN401
        nonlocal sends
        sends += 1
        result = await send(producer, message, **more)
        if sends == 2:
            raise RequestTimeout("no answer")
        return result

    group, topic = letters(b"0", b"1", b"2")
    with monkeypatch.context() as patch:
        patch.setattr(Producer, "send", lossy)
        ran = cli("dlq", "redrive", group, "--yes", code=1)
    assert ran.lines[0]["sent"] == 1
    states = {msg_id: row["state"] for msg_id, row in receipts(cli, group, code=1).items()}
    assert states == {id_of(0): "sent", id_of(1): "sending", id_of(2): "failed"}
    done = cli("dlq", "redrive", group, "--yes").lines[0]
    assert (done["sent"], done["foundSent"]) == (1, 1)
    assert sorted(bodies(cli, topic)) == ["0", "1", "2"]


@pytest.mark.parametrize("provenance", ["--provenance", "--no-provenance"])
def test_what_cannot_be_found_may_be_sent_twice_and_is_reported(
    cli: Cli, letters: Letters, monkeypatch: pytest.MonkeyPatch, provenance: str
) -> None:
    async def silent(*_: Any, **__: Any) -> SendResult:  # noqa: ANN401
        raise RequestTimeout("no answer")

    group, topic = letters(b"0")
    with monkeypatch.context() as patch:
        patch.setattr(Producer, "send", silent)
        cli("dlq", "redrive", group, provenance, "--yes", code=1)
    ran = cli("dlq", "redrive", group, "--yes")
    unknown = provenance == "--no-provenance"
    assert ("maybeTwice" in ran.lines[0], "may have been sent twice" in ran.err) == (unknown, unknown)
    assert bodies(cli, topic) == ["0"]


async def unanswered(producer: Producer, message: Message, **more: Any) -> SendResult:  # noqa: ANN401
    """The broker stores the message, and the producer does not learn it."""
    await SEND(producer, message, **more)
    raise RequestTimeout("no answer")


def test_letters_without_a_unique_id(
    cli: Cli, letters: Letters, feeder: RawProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    group, topic = letters()
    feeder.feed(dlq_topic(group), [b"0"], RETRY_TOPIC=topic)
    with monkeypatch.context() as patch:
        patch.setattr(Producer, "send", unanswered)
        cli("dlq", "redrive", group, "--yes", code=1)
    ran = cli("dlq", "redrive", group, "--yes")
    assert bodies(cli, topic) == ["0"]
    assert (ran.lines[0]["sent"], ran.lines[0]["foundSent"]) == (0, 1)


@pytest.mark.parametrize(
    "words",
    [
        ["--to-topic", "{other}"],
        ["--remove-property", "REPLAY_JOB", "--property", "REPLAY_OFFSET=77"],
        ["--edit"],
        ["--retry-topic"],
    ],
)
def test_a_letter_is_found_wherever_it_was_sent_and_however_it_was_edited(
    cli: Cli,
    letters: Letters,
    topics: Topics,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
) -> None:
    """The next redrive has other arguments: it must not send the letter to its own topic as well."""
    group, topic = letters(b"0")
    other, script = topics(), tmp_path / "editor"
    script.write_text(f"#!/bin/sh\nsed -i 's/{topic}/{other}/; /REPLAY_/d' $1\n")
    script.chmod(0o700)
    monkeypatch.setenv("VISUAL", str(script))
    if "--retry-topic" in words:
        cli("topic", "create", retry_topic(group), "--queues", "1")
    with monkeypatch.context() as patch:
        patch.setattr(Producer, "send", unanswered)
        cli("dlq", "redrive", group, "--yes", *(word.format(other=other) for word in words), code=1)
    done = cli("dlq", "redrive", group, "--yes").lines[0]
    assert (done["sent"], done.get("foundSent"), done.get("maybeTwice")) == (0, 1, None)
    assert len(bodies(cli, topic)) == (words[0] == "--remove-property")


def test_a_broker_that_may_have_the_letter_is_away(
    cli: Cli, letters: Letters, monkeypatch: pytest.MonkeyPatch
) -> None:
    group, _ = letters(b"0")
    with monkeypatch.context() as patch:
        patch.setattr(Producer, "send", unanswered)
        path = Path(cli("dlq", "redrive", group, "--yes", code=1).lines[0]["receipts"])
    receipt = orjson.loads(path.read_bytes())
    path.write_bytes(orjson.dumps(receipt | {"topic": "unreachable", "brokers": ["unreachable"]}) + b"\n")
    ran = cli("dlq", "redrive", group, "--yes")
    assert (ran.lines[0]["maybeTwice"], "may have been sent twice" in ran.err) == (1, True)


def test_progress_of_letters_that_were_there_before(cli: Cli, letters: Letters, name_server: str) -> None:
    """Brokers before 5.0 keep the offsets of a topic that is deleted: those beyond its end are not of its letters."""
    group, topic = letters(b"0", b"1")

    async def commit() -> None:
        async with Admin(name_server) as admin:
            [queue] = await admin.queues(dlq_topic(group))
            ext = {
                "consumerGroup": "TOOLS_CONSUMER",
                "topic": queue.topic,
                "queueId": "0",
                "commitOffset": "5",
            }
            answer = await admin.calls.ask_master(queue, RequestCode.UPDATE_CONSUMER_OFFSET, ext)
            assert answer.code == 0

    asyncio.run(commit())
    assert left(cli, group) == 2
    assert cli("dlq", "redrive", group, "--yes").lines[0]["sent"] == 2
    assert (left(cli, group), sorted(bodies(cli, topic))) == (0, ["0", "1"])


def test_two_at_a_time(cli: Cli, letters: Letters, name_server: str, tmp_path: Path) -> None:
    group, _ = letters(*(b"%d" % number for number in range(50)))
    words = ["dlq", "redrive", group, "--yes", "--receipts", str(tmp_path / "r")]
    command = ["firearrow", *words, "--rate", "1", "--namesrv", name_server]
    with ForkedCommand(command, env=dict(os.environ)) as process:
        eventually(lambda: (tmp_path / "r").exists() and b"sent" in (tmp_path / "r").read_bytes())
        assert "another redrive or drop is running" in cli(*words, code=2).err
        process.kill()
        process.wait(30)


# ---- drop ----


def test_chosen_letters_are_dropped(cli: Cli, letters: Letters) -> None:
    group, topic = letters(b"0", b"1", b"2", b"3")
    assert cli("dlq", "drop", group, "--key", "k1", "--key", "k2", "--dry-run").out == ""
    done = cli("dlq", "drop", group, "--key", "k1", "--key", "k2", "--yes").lines[0]
    assert (done["dropped"], done["deleted"]) == (2, 0), "there is one before them"
    assert left(cli, group) == 4
    assert "no such" in cli("dlq", "drop", group, "--key", "k1", "--yes").err
    done = cli("dlq", "drop", group, "--key", "k0", "--yes").lines[0]
    assert (done["dropped"], done["deleted"]) == (1, 3), "and those after it"
    assert left(cli, group) == 1
    assert cli("dlq", "redrive", group, "--yes").lines[0]["sent"] == 1
    assert bodies(cli, topic) == ["3"]


def test_redriven_letters_are_not_deleted_by_a_drop_of_others(cli: Cli, letters: Letters) -> None:
    group, _ = letters(b"0", b"1", b"2")
    cli("dlq", "redrive", group, "--key", "k0", "--yes")
    done = cli("dlq", "drop", group, "--key", "k1", "--yes").lines[0]
    assert (done["dropped"], done["deleted"]) == (1, 0)
    assert [row["state"] for row in cli("dlq", "show", group).rows] == ["sent", "dropped", None]
    assert left(cli, group) == 1
    cli("dlq", "drop", group, "--redriven", "--yes")
    assert [row["body"] for row in cli("dlq", "show", group).rows] == ["2"]


def test_letters_are_only_marked(cli: Cli, letters: Letters) -> None:
    group, _ = letters(b"0", b"1")
    done = cli("dlq", "drop", group, "--mark", "--yes").lines[0]
    assert (done["dropped"], done["deleted"]) == (2, 0)
    assert len(cli("dlq", "show", group).rows) == 2
    assert left(cli, group) == 0
    assert cli("dlq", "redrive", group, "--yes").out == ""
    assert cli("dlq", "redrive", group, "--again", "--yes").lines[0]["sent"] == 2


@pytest.mark.parametrize("words", [["--key", "k"], ["--from", "-1h"], ["--to", "-1h"], ["--mark"]])
def test_redriven_is_a_choice_of_its_own(cli: Cli, words: list[str]) -> None:
    assert "not both" in cli("dlq", "drop", "g", "--redriven", *words, code=2).err


# ---- export ----


def test_an_export_has_everything(cli: Cli, letters: Letters) -> None:
    group, topic = letters(b"\xff\x00")
    row = cli("dlq", "export", group).rows[0]
    assert {"flag", "sysFlag", "storeHost", "physicalOffset", "bodyCrc", "properties"} <= row.keys()
    assert (row["originTopic"], row["bodyEncoding"], row["body"]) == (topic, "base64", "/wA=")


def test_an_export_that_fails_leaves_no_file(cli: Cli, letters: Letters, tmp_path: Path) -> None:
    group, _ = letters(b"0")
    cli("dlq", "export", unique("none"), str(tmp_path / "f"), code=1)
    assert not (tmp_path / "f").exists()
    cli("dlq", "export", group, str(tmp_path / "f"))
    assert "it exists" in cli("dlq", "export", group, str(tmp_path / "f"), code=2).err
