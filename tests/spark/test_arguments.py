"""Arguments of jobs: the same names in all, checked before anything is opened, refused in one sentence."""

import re
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from firearrow._native.base.verbs import argument
from firearrow.client.base.times import time_ms
from firearrow.spark_tools.base.errors import InvalidOption, SendFailed
from firearrow.spark_tools.base.filter import MessageFilter
from firearrow.spark_tools.jobs.arguments import (
    QueueIdSet,
    RunArguments,
    SourceArguments,
    TargetArguments,
    as_text,
    assigned,
    lines,
)
from firearrow.spark_tools.jobs.program import Program, job_fingerprint
from firearrow.spark_tools.live.broker_source import BrokerSource
from firearrow.spark_tools.live.cluster import Cluster
from firearrow.spark_tools.offline.store_source import StoreSource
from tests.spark import running
from tests.spark.running import Ran

EIGHT = 1795248000000
"""2026-11-21T08:00:00Z in ms."""


@dataclass(frozen=True, kw_only=True)
class OwnArguments:
    fast: bool = argument("--fast", False, "")


Seen = tuple[SourceArguments, TargetArguments, RunArguments, OwnArguments]


def run(*arguments: str, error: BaseException | None = None) -> tuple[list[Seen], Ran]:
    """What a job with these arguments would see."""
    found: list[Seen] = []

    def job(*groups: *Seen) -> int:
        """A job."""
        if error is not None:
            raise error
        found.append(groups)
        return 0

    kinds = (SourceArguments, TargetArguments, RunArguments, OwnArguments)
    return found, running.run(Program("job", job, kinds), *arguments)


def seen(*arguments: str) -> Seen:
    [found], ran = run(*arguments)
    assert ran.code == 0, ran
    return found


def source(*arguments: str) -> SourceArguments:
    return seen(*arguments)[0]


def sending(*arguments: str) -> TargetArguments:
    return seen(*arguments)[1]


def test_groups_and_own_options_become_options_of_the_command() -> None:
    reading, sent, ran, own = seen(
        "--path", "a", "--path", "b", "--target", "t:1", "--fast", "--report", "r.json"
    )
    assert reading.path == ["a", "b"]
    assert (sent.target, ran.report, own.fast) == ("t:1", Path("r.json"), True)


def test_help_shows_every_option_once() -> None:
    output = run("--help")[1].out
    for option in ("--path", "--offsets", "--keys-file", "--bytes-rate", "--checkpoint", "--fast"):
        assert len(re.findall(rf"^  {option}\b", output, re.M)) == 1, option


def test_a_pair_of_options_is_on_or_off() -> None:
    assert source("--fast").check_crc is True
    assert source("--check-crc").check_crc is True
    assert source("--check-crc", "--no-check-crc").check_crc is False
    assert source("--no-check-crc", "--check-crc").check_crc is True


def test_a_value_may_start_with_a_dash() -> None:
    """Keys come from messages."""
    reading = source("--keys", "-k1", "--keys", "--fast", "--sql", "-a > 1", "--path=-p")
    assert (reading.keys, reading.sql, reading.path) == (["-k1", "--fast"], "-a > 1", ["-p"])


@pytest.mark.parametrize(
    "words", [("--keyz", "k"), ("--rate", "many"), ("--ke", "k"), ("more",), ("--path",)]
)
def test_wrong_usage_is_one_sentence(words: tuple[str, ...]) -> None:
    ran = run("--fast", *words)[1]
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert ran.err.startswith("firearrow spark job: ")
    assert words[0] in ran.err


@pytest.mark.parametrize(("error", "code"), [(InvalidOption("no"), 2), (SendFailed("no"), 1)])
def test_a_refusal_is_one_sentence_and_an_exit_code(error: Exception, code: int) -> None:
    ran = run("--fast", error=error)[1]
    assert (ran.code, ran.err) == (code, "firearrow: no\n")


def test_an_interrupt_says_how_to_go_on() -> None:
    ran = run("--fast", error=KeyboardInterrupt())[1]
    assert ran.code == 130
    assert "run the same command again to resume" in ran.err


def test_a_store_or_a_name_server_is_the_origin() -> None:
    assert source("--path", "/s/a").message_source(60) == StoreSource(("/s/a",))
    live = source("--name-server", "127.0.0.1:9876", "--source-group", "tools")
    assert live.message_source(7) == BrokerSource(Cluster(name_server="127.0.0.1:9876"), "tools", timeout_s=7)


@pytest.mark.parametrize("arguments", [("--fast",), ("--path", "a", "--name-server", "b:1")])
def test_one_origin_is_needed(arguments: tuple[str, ...]) -> None:
    with pytest.raises(InvalidOption, match="--path or --namesrv: set one of them"):
        source(*arguments).message_source(60)


def test_options_of_the_client_go_along() -> None:
    given = sending("--target", "t:1", "--target-option", "rocketmq.namespace=ns")
    assert given.cluster().namespace == "ns"
    with pytest.raises(InvalidOption, match="--target-option: expected KEY=VALUE, not 'x'"):
        sending("--target", "t:1", "--target-option", "x").cluster()
    with pytest.raises(InvalidOption, match="--target: "):
        sending("--fast").cluster()


@pytest.mark.parametrize("setting", ["accessKey=me", "group=G", "nameServer=other:9"])
def test_what_is_no_option_of_the_client_is_refused(setting: str) -> None:
    key = setting.partition("=")[0]
    expected = rf"-option: {key} is not an option of the client; those begin with rocketmq\.$"
    with pytest.raises(InvalidOption, match="^--target" + expected):
        sending("--target", "t:1", "--target-option", setting).cluster()
    with pytest.raises(InvalidOption, match="^--source" + expected):
        source("--name-server", "n:1", "--source-option", setting).message_source(1)


def test_an_option_of_the_client_that_there_is_not_is_refused() -> None:
    with pytest.raises(
        InvalidOption, match=r"rocketmq\.acesskey: unknown option; the known ones are rocketmq\."
    ):
        sending("--target", "t:1", "--target-option", "rocketmq.acessKey=me").cluster()


def test_files_have_no_client_whose_options_they_were() -> None:
    given = source("--path", "s", "--source-option", "rocketmq.accessKey=me")
    with pytest.raises(InvalidOption, match="--source-option: stores of --path are read without a client"):
        given.message_source(1)


def test_the_choice_is_made_of_all_that_is_given(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("k3\n\n k4 \n")
    given = source(
        "--tags",
        "A || B",
        "--tags",
        "C",
        "--keys",
        "k1,k2",
        "--keys-file",
        str(tmp_path / "keys"),
        "--sql",
        "a > 1",
        "--unique-ids",
        "u1",
        "--from",
        "2026-11-21T08:00Z",
        "--until",
        str(EIGHT + 1),
    )
    assert given.message_filter() == MessageFilter(
        tags=frozenset("ABC"),
        keys=frozenset({"k1", "k2", "k3", "k4"}),
        unique_ids=frozenset({"u1"}),
        stored=(EIGHT, EIGHT + 1),
        sql="a > 1",
    )
    assert source("--fast").message_filter() == MessageFilter()


def test_an_index_is_asked_for_keys_of_a_store_only() -> None:
    given = source("--path", "/s", "--by-index", "--unique-ids", "u1")
    assert given.by_index
    assert isinstance(given.message_source(1), StoreSource)
    assert given.message_filter() == MessageFilter(unique_ids=frozenset({"u1"}))
    with pytest.raises(InvalidOption, match=r"--by-index: .* only with --path"):
        source("--name-server", "b:1", "--by-index", "--keys", "k").message_source(1)
    with pytest.raises(InvalidOption, match="--by-index: no keys to look up"):
        source("--path", "/s", "--by-index").message_filter()


@pytest.mark.parametrize(
    "text",
    ["2026-11-21T09:00+01:00", "2026-11-21T08:00Z", "2026-11-21 13:30", str(EIGHT), str(EIGHT // 1000)],
)
def test_times_are_those_of_all_commands(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Local unless they name their zone; what `firearrow message find` takes for a time is the same here."""
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    try:
        assert source("--from", text).stored() == (EIGHT, None)
        assert time_ms(text) == EIGHT
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize("text", ["-15m", "now", "+1h"])
def test_a_job_has_no_relative_times(text: str) -> None:
    """It may be resumed at another time."""
    with pytest.raises(InvalidOption, match="needs a fixed time"):
        source(f"--from={text}").stored()


def test_each_word_has_its_old_name_as_well(tmp_path: Path) -> None:
    (tmp_path / "ids").write_text("u1\nu2\n")
    new = source(
        "--namesrv", "b:1", "--topic", "A", "--tag", "t", "--key", "a,b", "--ids", f"@{tmp_path / 'ids'}"
    )
    assert new.message_filter() == MessageFilter(
        tags=frozenset("t"), keys=frozenset({"a,b"}), unique_ids=frozenset({"u1", "u2"})
    )
    old = source(
        "--name-server", "b:1", "--topics", "A", "--tags", "t", "--unique-ids", "u1,u2", "--until", "9"
    )
    assert (old.name_server, old.topics, old.tags) == (new.name_server, new.topics, new.tags)
    assert old.message_filter().unique_ids == new.message_filter().unique_ids
    assert old.stored() == source("--to", "9").stored() == (None, 9000)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--from", "yesterday"), "--from='yesterday': 'yesterday' is not a time"),
        (("--from", "2000", "--until", "2000"), "--until 2000 is not after --from 2000"),
        (("--tags", "A||"), "--tag="),
        (("--keys", ","), "--keys="),
        (("--keys-file", "/nowhere"), "--keys-file='/nowhere': cannot be read"),
    ],
)
def test_a_wrong_choice_names_its_option(arguments: tuple[str, ...], expected: str) -> None:
    with pytest.raises(InvalidOption, match=re.escape(expected)):
        source(*arguments).message_filter()


def test_a_wrong_pattern_names_its_option() -> None:
    with pytest.raises(InvalidOption, match=r"--pattern='\('"):
        source("--pattern", "(").topic_pattern()


def test_queues_are_ids_and_ranges_of_any_or_one_broker() -> None:
    found = QueueIdSet.of("0,2-4,broker-b:7")
    assert [number for number in range(10) if ("broker-a", number) in found] == [0, 2, 3, 4]
    assert ("broker-b", 7) in found
    assert ("broker-a", 7) not in found
    assert ("any", 99) in QueueIdSet()


@pytest.mark.parametrize("text", ["", "x", "3-1", "-1", "1-", "70000", ":1", "1,,2", "0x1", "٣"])
def test_invalid_queues_are_refused(text: str) -> None:
    with pytest.raises(InvalidOption, match="--queues="):
        source("--queues", text).queue_set()


def test_offsets_are_starts_or_ranges() -> None:
    text = '{"T": {"b": {"0": 5, "1": [5, 9], "2": [-2, -1], "3": [7, 7]}}}'
    assert assigned(text) == {
        ("T", "b", 0): (5, -1),
        ("T", "b", 1): (5, 9),
        ("T", "b", 2): (-2, -1),
        ("T", "b", 3): (7, 7),
    }


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", "{", '{"T": 1}', '{"T": {"b": 1}}', '{"T": {"b": {"x": 1}}}', '{"T": {"b": {"0": "x"}}}',
     '{"T": {"b": {"0": [1, 2, 3]}}}', '{"T": {"b": {"0": [3, 2]}}}', '{"T": {"b": {"0": [0, -2]}}}',
     '{"T": {"b": {"0": -3}}}', '{"T": {"b": {"0": [1, 9223372036854775808]}}}', '{"T": {"b": {"70000": 1}}}'],
)  # fmt: skip
def test_invalid_offsets_are_refused(text: str) -> None:
    with pytest.raises(InvalidOption, match="--offsets="):
        source("--offsets", text).assigned()


@pytest.mark.parametrize(
    ("content", "expected"),
    [(b"\n \n", "is empty; write one key per line"), (b"\xff", "not UTF-8 at byte 0")],
)
def test_a_file_of_keys_must_hold_some(tmp_path: Path, content: bytes, expected: str) -> None:
    (tmp_path / "keys").write_bytes(content)
    with pytest.raises(ValueError, match=expected):
        lines(tmp_path / "keys")


@pytest.mark.parametrize(
    ("given", "topics"),
    [
        ((), {"A": "A", "B": "B"}),
        (("X",), {"A": "X", "B": "X"}),
        (("A=X",), {"A": "X", "B": "B"}),
        (("A=X", "Y"), {"A": "X", "B": "Y"}),
    ],
)
def test_topics_get_other_names(given: tuple[str, ...], topics: dict[str, str]) -> None:
    renamed = TargetArguments(to_topic=list(given)).renamed()
    assert {name: renamed(name) for name in topics} == topics


@pytest.mark.parametrize("given", [["X", "Y"], ["A=X", "A=Y"], ["=X"], ["A="], [""]])
def test_topics_get_one_name_each(given: list[str]) -> None:
    with pytest.raises(InvalidOption, match="--to-topic"):
        TargetArguments(to_topic=given).check()


@pytest.mark.parametrize(
    ("given", "option"),
    [({"rate": 0}, "--rate"), ({"rate": -1}, "--rate"), ({"bytes_rate": float("nan")}, "--bytes-rate")],
)
def test_rates_have_bounds(given: dict[str, float], option: str) -> None:
    with pytest.raises(InvalidOption, match=option):
        TargetArguments(**given).check()  # type: ignore[arg-type]


@pytest.mark.parametrize("timeout_s", [0, 86401, float("nan")])
def test_a_time_has_bounds(timeout_s: float) -> None:
    with pytest.raises(InvalidOption, match="--timeout"):
        RunArguments(timeout_s=timeout_s).check()


def test_secrets_are_masked_and_what_may_change_is_not_digested() -> None:
    given = TargetArguments(
        target="t", target_settings=["rocketmq.secretKey=hush", "rocketmq.accessKey=me"], rate=5
    )
    assert as_text(given)["target_settings"] == ["rocketmq.secretKey=…", "rocketmq.accessKey=me"]
    for fail in (True, False):
        source = SourceArguments(path=["a"], group="tools", fail_on_data_loss=fail, check_crc=fail)
        assert job_fingerprint(source, given, unordered=True) == {
            "path": ["a"],
            "target": "t",
            "unordered": True,
        }
    assert job_fingerprint(SourceArguments(path=["a"], by_index=True))["by_index"]


def test_another_content_of_the_keys_file_is_another_job(tmp_path: Path) -> None:
    given = SourceArguments(path=["a"], keys_file=tmp_path / "keys")
    (tmp_path / "keys").write_text("one")
    before = job_fingerprint(given)
    (tmp_path / "keys").write_text("two")
    assert job_fingerprint(given) != before
