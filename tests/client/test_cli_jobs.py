"""`firearrow jobs`: the progress of copies and of Spark's jobs, from their checkpoints."""

from pathlib import Path

import pytest

from firearrow.client.base.message import MessageQueue
from firearrow.client.cli.transfer import jobs
from firearrow.spark_tools.base.source import QueueRange
from firearrow.spark_tools.jobs.checkpoint import SliceProgress, checkpoint
from tests.support.broker_process import BrokerProcess
from tests.support.command_line import here
from tests.support.requests import send


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def test_spark_jobs(tmp_path: Path) -> None:
    ranges = [QueueRange(MessageQueue("orders", "a", number), 10, 30) for number in range(2)]
    with checkpoint(tmp_path / ".firearrow-replay-1", "replay", {}, lambda: ranges) as running:
        done = SliceProgress(0, 30, {"messages": 18})
        running.progress_files.write(SliceProgress(0, 12, {"messages": 1}))
        running.progress_files.write(done)
        with (running.folder / "marks" / "0").open("ab") as file:
            file.write(b'\n{"next": 3')  # cut by a kill
        [row] = here("jobs", str(tmp_path), name_server="127.0.0.1:1").lines
        assert (row["job"], row["state"], row["messages"], row["left"]) == ("spark replay", "running", 18, 20)
        running.progress_files.write(SliceProgress(1, 30, {"messages": 20}))
    [row] = here("jobs", str(tmp_path), name_server="127.0.0.1:1").lines
    assert (row["state"], row["messages"], row["left"]) == ("done", 38, 0)
    (running.folder / "plan.json").write_text("[]")
    answer = here("jobs", str(tmp_path), name_server="127.0.0.1:1")
    assert (answer.lines, "cannot be read as a checkpoint" in answer.err) == ([], True)


def test_copies(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "store") as broker, broker.connect() as connection:
        assert broker.name_server is not None
        where = "{}:{}".format(*broker.name_server)
        for _ in range(5):
            assert send(connection, "from", b"x").code == 0
        assert here("topic", "create", "to", name_server=where).code == 0
        assert here("topic", "copy", "from", "to", name_server=where).code == 0
        [row] = here("jobs", name_server=where).lines
        assert (row["job"], row["state"], row["messages"], row["left"]) == ("topic copy", "done", 5, 0)
        assert here("topic", "copy", "from", "to", "--limit", "2", name_server=where).code == 0
        here("topic", "export", "from", str(tmp_path / "f.jsonl"), name_server=where)
        assert here("topic", "import", "to", str(tmp_path / "f.jsonl"), name_server=where).code == 0
        jobs = {(row["job"], row["messages"]): row["state"] for row in here("jobs", name_server=where).lines}
        assert jobs == dict.fromkeys([("topic copy", 5), ("topic copy", 2), ("topic import", 5)], "done"), (
            "though a copy with a limit has left some"
        )


def test_exports_that_were_stopped(tmp_path: Path) -> None:
    """They are beside their files."""
    with BrokerProcess(tmp_path / "store") as broker, broker.connect() as connection:
        assert broker.name_server is not None
        where = "{}:{}".format(*broker.name_server)
        assert send(connection, "from", b"x").code == 0
        (tmp_path / "f.jsonl.manifest").mkdir()  # the export cannot be completed
        assert here("topic", "export", "from", str(tmp_path / "f.jsonl"), name_server=where).code == 1
        [row] = here("jobs", str(tmp_path), name_server=where).lines
        assert (row["job"], row["state"], row["messages"]) == ("topic export", "stopped", 1)


def test_only_the_newest_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "FILES_MAX", 1)
    for name in ("one", "two"):
        with checkpoint(tmp_path / f".firearrow-{name}", name, {}, list):
            pass
    assert len(here("jobs", str(tmp_path), name_server="127.0.0.1:1").lines) == 1
