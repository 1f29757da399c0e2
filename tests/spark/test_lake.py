"""The log in tables of Delta Lake, Iceberg and Paimon: each message once, whatever happens to a run or to the table."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from firearrow.client import blocking
from firearrow.client.base.message import Message
from firearrow.client.local_broker import LocalBroker
from firearrow.spark_tools.arrow.columns import ALL
from firearrow.spark_tools.arrow.columns import schema as schema_of
from firearrow.spark_tools.base.errors import DataLoss, InvalidOption, WriteFailed
from firearrow.spark_tools.lake.command import main
from firearrow.spark_tools.lake.export import append_new
from firearrow.spark_tools.lake.progress import HistoryExpired, LakeTable, Progress, TableChanged
from tests.spark.lake_killed import POINTS
from tests.spark.lakes import LAKES, Lake, lake_of
from tests.spark.stores import KnownStore

PAGE = Path(__file__).resolve().parents[2] / "docs/integrations/LAKE.md"
TOPIC = "Orders"
ROW = pa.Table.from_pylist([{"body": b""}], schema=schema_of(ALL))
"""Of another program."""
Send = Callable[..., list[bytes]]


@pytest.fixture(params=LAKES)
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    return lake_of(request.param, tmp_path)


@pytest.fixture(scope="module")
def producer(broker: LocalBroker) -> Iterator[blocking.Producer]:
    with blocking.Producer("lake", name_server=broker.name_server) as running:
        yield running


@pytest.fixture
def send(producer: blocking.Producer) -> Send:
    """`send(topic, 3)`: the bodies of three new messages."""

    def some(topic: str, count: int, tag: str = "a") -> list[bytes]:
        bodies = [os.urandom(8) for _ in range(count)]
        for body in bodies:
            producer.send(Message(topic, body, tags=tag, keys=("k",)))
        return bodies

    return some


def test_all_columns_then_only_what_is_new(
    lake: Lake, store: KnownStore, broker: LocalBroker, topics: Callable[..., str], send: Send
) -> None:
    first = lake.export(store.root, TOPIC, maxBytesPerTrigger="100k")
    assert first.commits > 1
    found = {(row["queueId"], row["queueOffset"]): row for row in lake.rows()}
    assert first.rows == len(found) == len(lake.rows()) == len(store.of(TOPIC))
    assert set(found[0, 0]) == set(ALL)
    for known in store.of(TOPIC):
        row = found[known.queue.queue_id, known.queue_offset]
        assert (row["body"], row["tags"], row["uniqKey"]) == (known.body, known.tags, known.unique_id)
        assert known.properties.items() <= dict(row["properties"]).items()
    again = lake.export(store.root, TOPIC)
    assert (again.rows, again.commits) == (0, 0)
    topic = topics(2)
    bodies = [row["body"] for row in lake.rows()] + send(topic, 5)
    assert lake.export(broker.name_server, topic).rows == 5
    bodies += send(topic, 3)
    assert lake.export(broker.name_server, topic).rows == 3
    assert lake.export(store.root, TOPIC).rows == 0  # another job's commits are passed over
    assert lake.bodies() == sorted(bodies)


@pytest.mark.parametrize("point", [pytest.param(POINTS[0], marks=pytest.mark.long), *POINTS[1:]])
def test_killed_in_the_middle(
    lake: Lake, broker: LocalBroker, topics: Callable[..., str], send: Send, point: str
) -> None:
    topic = topics(2)
    bodies = send(topic, 40)
    kind = next(kind for kind, (_, made) in LAKES.items() if isinstance(lake, made))
    words = [kind, str(lake.folder), broker.name_server, topic, point]
    killed = subprocess.run(
        [sys.executable, "-m", "tests.spark.lake_killed", *words],
        cwd=Path(__file__).parents[2],
        timeout=120,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    done = len(lake.rows())
    assert done == (20 if point == "committed" else 10)
    bodies += send(topic, 5)
    assert lake.export(broker.name_server, topic).rows == 45 - done
    assert lake.bodies() == sorted(bodies)


class Interrupted:
    """A table to which others commit while rows are appended."""

    def __init__(
        self, table: LakeTable, *meanwhile: Callable[[], object], after: Callable[[], object] | None = None
    ) -> None:
        """`after`: the first commit."""
        self._table = table
        self._meanwhile = list(meanwhile)
        self._after = after

    def progress(self, job: str) -> Progress | None:
        return self._table.progress(job)

    def columns(self) -> list[str] | None:
        return self._table.columns()

    def append(self, batches: pa.RecordBatchReader, progress: Progress) -> None:
        def watched() -> Iterator[pa.RecordBatch]:
            yield from batches
            if self._meanwhile:
                with ThreadPoolExecutor(1) as another:
                    another.submit(self._meanwhile.pop(0)).result()

        self._table.append(pa.RecordBatchReader.from_batches(batches.schema, watched()), progress)
        if self._after is not None:
            after, self._after = self._after, None
            after()

    def __str__(self) -> str:
        return "the table"


@pytest.mark.parametrize("new", [True, False])
def test_of_two_runs_at_once_one_fails(
    lake: Lake, broker: LocalBroker, topics: Callable[..., str], send: Send, new: bool
) -> None:
    topic = topics(1)
    bodies = send(topic, 4)
    if not new:
        lake.export(broker.name_server, topic)
        bodies += send(topic, 4)
    table = Interrupted(lake.table(), lambda: lake.export(broker.name_server, topic))
    with pytest.raises(TableChanged, match="another run of the export"):
        append_new(table, broker.name_server, topic, None, False, {})
    assert lake.bodies() == sorted(bodies)
    assert lake.export(broker.name_server, topic).rows == 0


@pytest.mark.parametrize("new", [True, False])
def test_another_run_between_two_commits(
    lake: Lake, broker: LocalBroker, topics: Callable[..., str], send: Send, new: bool
) -> None:
    topic = topics(1)
    bodies = send(topic, 4)
    if not new:
        lake.export(broker.name_server, topic)
        bodies += send(topic, 4)
    table = Interrupted(lake.table(), after=lambda: lake.export(broker.name_server, topic))
    with pytest.raises(TableChanged, match="another run of the export"):
        append_new(table, broker.name_server, topic, None, False, {"maxOffsetsPerTrigger": 2})
    assert lake.bodies() == sorted(bodies)


def test_commits_of_others_at_the_same_time(
    lake: Lake, broker: LocalBroker, topics: Callable[..., str], send: Send
) -> None:
    topic, other = topics(1), topics(1)
    bodies = send(topic, 4) + send(other, 3)
    lake.export(broker.name_server, topic)
    bodies += send(topic, 4)
    table = Interrupted(lake.table(), lambda: lake.export(broker.name_server, other), lake.compact)
    assert append_new(table, broker.name_server, topic, None, False, {}).rows == 4
    assert lake.bodies() == sorted(bodies)


def test_a_table_that_is_always_changed(
    lake: Lake, broker: LocalBroker, topics: Callable[..., str], send: Send
) -> None:
    topic = topics(1)
    bodies = send(topic, 4)
    lake.export(broker.name_server, topic)
    more = send(topic, 1)
    table = Interrupted(lake.table(), *[lambda: lake.append(ROW)] * 10)
    with pytest.raises(TableChanged):
        append_new(table, broker.name_server, topic, None, False, {})
    assert [body for body in lake.bodies() if body] == sorted(bodies)
    assert lake.export(broker.name_server, topic).rows == 1
    assert [body for body in lake.bodies() if body] == sorted(bodies + more)


def test_compacted_and_rolled_back(
    lake: Lake, broker: LocalBroker, topics: Callable[..., str], send: Send
) -> None:
    topic = topics(1)
    bodies = send(topic, 4)
    lake.export(broker.name_server, topic)
    bodies += send(topic, 3)
    lake.export(broker.name_server, topic)
    lake.compact()
    bodies += send(topic, 2)
    assert lake.export(broker.name_server, topic).rows == 2
    lake.roll_back(3)
    assert len(lake.rows()) == 4
    assert lake.export(broker.name_server, topic).rows == 5
    assert lake.bodies() == sorted(bodies)


def test_commits_that_have_expired(
    lake: Lake, broker: LocalBroker, topics: Callable[..., str], send: Send
) -> None:
    topic = topics(1)
    bodies = send(topic, 4)
    lake.export(broker.name_server, topic)
    lake.compact()
    lake.append(ROW)
    lake.expire()
    bodies += send(topic, 2)
    with pytest.raises(HistoryExpired, match="run it once with restart=True"):
        lake.export(broker.name_server, topic)
    after = {topic: {"broker-a": {"0": 4}}}
    assert lake.export(broker.name_server, topic, restart=True, startingOffsets=after).rows == 2
    bodies += send(topic, 1)
    assert lake.export(broker.name_server, topic).rows == 1
    assert [body for body in lake.bodies() if body] == sorted(bodies)


def test_a_topic_that_is_recreated_is_read_from_its_first_message(
    lake: Lake, broker: LocalBroker, topics: Callable[..., str], send: Send
) -> None:
    topic = topics(1)
    bodies = send(topic, 4)
    lake.export(broker.name_server, topic)
    with blocking.Admin(name_server=broker.name_server) as admin:
        admin.delete_topic(topic)
        admin.create_topic(topic, 1)
    bodies += send(topic, 6)
    assert lake.export(broker.name_server, topic).rows == 6
    assert lake.bodies() == sorted(bodies)


def test_what_is_lost_ends_the_run_or_is_counted(lake: Lake, store: KnownStore, tmp_path: Path) -> None:
    root = store.copied(tmp_path)
    min((root / "commitlog").iterdir()).unlink()
    lost = {"startingOffsets": json.dumps({TOPIC: {root.name: {"0": 0}}})}
    with pytest.raises(DataLoss, match="messages are missing"):
        lake.export(root, **lost)
    done = lake.export(root, failOnDataLoss=False, **lost)
    assert done.lost > 0
    assert 0 < done.rows == len(lake.rows()) < len(store.messages)


def test_a_damaged_record_leaves_no_commit(lake: Lake, store: KnownStore, tmp_path: Path) -> None:
    """It is found while rows are written."""
    root = store.copied(tmp_path)
    known = next(each for each in reversed(store.of(TOPIC)) if len(each.body) > 100 and each.packed is None)
    for file in (root / "commitlog").iterdir():
        data = file.read_bytes()
        file.write_bytes(data.replace(known.body, b"\x00" * len(known.body)))
    with pytest.raises(DataLoss, match="does not match its CRC"):
        lake.export(root, TOPIC)
    done = lake.export(root, TOPIC, failOnDataLoss=False)
    assert done.lost > 0
    assert done.rows + done.lost == len(store.of(TOPIC))


def test_another_selection_needs_another_job(
    lake: Lake, broker: LocalBroker, topics: Callable[..., str], send: Send
) -> None:
    topic = topics(1)
    paid = send(topic, 4, "paid")
    send(topic, 2, "new")
    assert lake.export(broker.name_server, topic, tags="paid").rows == 4
    with pytest.raises(InvalidOption, match="has taken other messages so far"):
        lake.export(broker.name_server, topic)
    assert lake.export(broker.name_server, topic, "all of them").rows == 6
    assert lake.export(broker.name_server, topic, tags="paid").rows == 0
    assert len(lake.rows()) == len(paid) + 6


@pytest.mark.parametrize("partitioned", [False, True])
def test_a_table_with_columns_of_its_own(
    lake: Lake, broker: LocalBroker, topics: Callable[..., str], send: Send, partitioned: bool
) -> None:
    topic = topics(2)
    names = ("queueId", "body", "storeTimestamp")
    lake.create(schema_of(names), partitioned=partitioned)
    bodies = send(topic, 6)
    assert lake.export(broker.name_server, topic).rows == 6
    assert lake.bodies() == sorted(bodies)
    assert set(lake.rows()[0]) == set(names)


def test_a_table_that_cannot_take_the_rows(
    lake: Lake, broker: LocalBroker, topics: Callable[..., str], send: Send
) -> None:
    topic = topics(1)
    send(topic, 1)
    lake.create(pa.schema([("body", pa.int64())]))
    with pytest.raises(WriteFailed):
        lake.export(broker.name_server, topic)


def test_a_table_without_any_of_the_columns(lake: Lake, store: KnownStore) -> None:
    lake.create(pa.schema([("other", pa.int64())]))
    with pytest.raises(InvalidOption, match="has none of the columns topic, queueId"):
        lake.export(store.root, TOPIC)


def test_the_command(
    lake: Lake,
    broker: LocalBroker,
    topics: Callable[..., str],
    send: Send,
    capfd: pytest.CaptureFixture[str],
) -> None:
    topic = topics(1)
    send(topic, 3)
    words = [*lake.arguments(), "--namesrv", broker.name_server, "--topic", topic]
    assert main([*words, "--json"]) == 0
    expected: dict[str, Any] = {"job": topic, "rows": 3, "commits": 1, "lost": 0}
    assert json.loads(capfd.readouterr().out) == expected
    assert main(words) == 0
    assert "0 messages appended in 0 commits" in capfd.readouterr().out
    assert main([*words, "--tag", "other"]) == 2
    assert "has taken other messages so far" in capfd.readouterr().err
    assert main([*words, "--source-option", "x"]) == 2
    assert main([*lake.arguments(), "--path", str(lake.folder / "nothing")]) == 2


@pytest.mark.parametrize(
    "name", ["a b", "50%", "ü", "~", "a#b", "a?b", "a%20b", "a[b", "a]b", "a^b", "a|b", "a\\b"]
)
def test_names_of_delta_tables(
    store: KnownStore, tmp_path: Path, capfd: pytest.CaptureFixture[str], name: str
) -> None:
    """deltalake finds no commits, and so no offsets, of some names: each run would append all messages again."""
    words = [f"{tmp_path}/{name}/x", "--format", "delta", "--path", str(store.root), "--topic", TOPIC]
    if not set("#?%[]^|\\").isdisjoint(name[:-1]):
        assert main(words) == 2
        assert f"may not have {name[1:-1]}" in capfd.readouterr().err
        assert list(tmp_path.iterdir()) == []
        return
    assert (main(words), main(words)) == (0, 0)
    assert f"{name}/x: 0 messages appended" in capfd.readouterr().out


def test_a_delta_table_without_its_first_commit(store: KnownStore, tmp_path: Path) -> None:
    lake = lake_of("delta", tmp_path)
    lake.export(store.root, TOPIC)
    lake.expire()
    DeltaTable(tmp_path / "delta").create_checkpoint()
    (tmp_path / "delta" / "_delta_log" / f"{0:020}.json").unlink()
    with pytest.raises(HistoryExpired):
        lake.export(store.root, TOPIC)


def test_a_catalog_that_is_not_configured(store: KnownStore, capfd: pytest.CaptureFixture[str]) -> None:
    for kind in ("iceberg", "paimon"):
        lake_of(kind, store.root)
        assert main(["a.b", "--format", kind, "--path", str(store.root), "--topic", TOPIC]) == 2
        assert "firearrow export: the catalog cannot be opened: " in capfd.readouterr().err


def test_the_page(store: KnownStore, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The program of docs/integrations/LAKE.md, and its first command, which finds nothing new afterwards."""
    text = PAGE.read_text("utf-8").replace("/data/store", str(store.root)).replace("/lake/", f"{tmp_path}/")
    (program,) = re.findall(r"```python\n(.*?)```", text, re.S)
    exec(compile(program, str(PAGE), "exec"), {})
    assert capfd.readouterr().out == f"{len(store.of(TOPIC))} 1\n"
    command = next(line for line in text.splitlines() if line.startswith("firearrow export"))
    assert main(command.split()[2:]) == 0
    assert "0 messages appended in 0 commits" in capfd.readouterr().out


def test_a_missing_package_is_one_sentence(store: KnownStore) -> None:
    packages = {package: kind for kind, (package, _) in LAKES.items()}
    program = f"""
import sys, firearrow
firearrow.to_delta
print(sorted({{each.partition(".")[0] for each in sys.modules}} & set({list(packages)})))
sys.modules |= dict.fromkeys({list(packages)})
from firearrow.spark_tools.lake.command import main
print([main(["a.b", "--format", kind, "--path", {str(store.root)!r}]) for kind in {list(packages.values())}])
"""
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert run.stdout.split("\n") == ["[]", "[2, 2, 2]", ""]
    for package, kind in packages.items():
        assert f"the package {package} is missing: pip install 'firearrow[{kind}]'" in run.stderr


def test_without_pyarrow() -> None:
    program = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "from firearrow.client.cli.main import main; sys.exit(main(['export', 'a', '--format', 'delta']))"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert run.returncode == 3
    assert run.stderr == (
        "firearrow export: the Python package pyarrow is not installed: pip install 'firearrow[delta]', or iceberg, "
        "or paimon\n"
    )
