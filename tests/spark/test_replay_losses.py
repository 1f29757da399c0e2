"""replay of a damaged store: all that is gone is counted, and named up to a limit."""

from pathlib import Path

import orjson
import pytest

from firearrow.client.local_broker import LocalBroker
from firearrow.spark_tools.jobs import losses
from firearrow.spark_tools.jobs.replay import cli
from tests.spark.damaged_store import COUNT, record_at, write_at
from tests.spark.replaying import Job, bodies, job

TORN = range(20, 40, 2)
"""Of queue 0."""


@pytest.fixture
def replay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    return job(cli, tmp_path, monkeypatch)


@pytest.fixture
def torn(root: Path) -> Path:
    for number in TORN:
        path, position, _ = record_at(root, number)
        write_at(path, position + 4, b"\0\0\0\0")
    return root


def arguments(root: Path, target: LocalBroker) -> list[str]:
    return ["--path", f"s={root}", "--topics", "T", "--target", target.name_server, "--create-topics"]


def test_all_that_is_gone_is_counted_and_some_of_it_named(
    torn: Path, target: LocalBroker, replay: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(losses, "NAMED_MAX", 3)
    ran = replay(*arguments(torn, target), "--no-fail-on-data-loss", "--verify")
    assert ran.report["totals"]["lost"] == ran.report["totals"]["lost_ranges"] == len(TORN)
    assert ran.report["topics"]["T"]["lost"] == len(TORN)
    assert len(ran.report["lost"]) == 3
    assert f"lost: {len(TORN)} messages in {len(TORN)} ranges" in ran.out
    assert ran.report["verification"]["unreadable"] == len(TORN)
    assert ran.report["verification"]["messages"] == 2 * COUNT - len(TORN)


def test_a_job_that_a_loss_has_ended_goes_on_and_counts_it(
    torn: Path, target: LocalBroker, replay: Job
) -> None:
    ended = replay(*arguments(torn, target))
    assert ended.code == 1
    assert any(f"T@s:0[{TORN[0]}..{TORN[0] + 1})" in text for text in ended.report["failures"])
    went_on = replay(*arguments(torn, target), "--no-fail-on-data-loss")
    assert went_on.code == 0, went_on.err
    assert went_on.report["resumed"]
    assert went_on.report["id"] == ended.report["id"]
    assert went_on.report["totals"]["lost"] == len(went_on.report["lost"]) == len(TORN)
    found = bodies(target.store, "T")
    assert {number: set(each) for number, each in found.items()} == {
        0: {b"%d of 0" % number for number in range(COUNT) if number not in TORN},
        1: {b"%d of 1" % number for number in range(COUNT)},
    }


@pytest.mark.parametrize(
    ("asked", "gone"),
    [([150, 200], "150..200"), ([90, 200], "100..200"), (150, "100..150"), ([100, 200], "100..200")],
)
def test_only_what_was_asked_for_is_counted_as_gone(
    root: Path, target: LocalBroker, replay: Job, asked: object, gone: str
) -> None:
    offsets = orjson.dumps({"T": {"s": {"0": asked, "1": [0, 1]}}}).decode()
    words = ["--path", f"s={root}", "--offsets", offsets, "--target", target.name_server, "--create-topics"]
    ran = replay(*words, "--no-fail-on-data-loss")
    assert ran.code == 0, ran.err
    first, end = map(int, gone.split(".."))
    assert list(ran.report["lost"]) == [f"T@s:0[{gone}): beyond the end of the queue, which is {COUNT}"]
    assert (ran.report["totals"]["lost"], ran.report["totals"]["lost_ranges"]) == (end - first, 1)
    assert len(bodies(target.store, "T")[1]) == 1
