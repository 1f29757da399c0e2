"""The log as Arrow tables, without Spark: datasets, Polars, pandas, DuckDB, SQL and tails, of files and of a broker."""

import asyncio
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from firearrow.client import blocking
from firearrow.client.base.message import Message
from firearrow.client.local_broker import LocalBroker
from firearrow.spark_tools.arrow.columns import ALL
from firearrow.spark_tools.base.errors import DataLoss, InvalidOption, TopicNotFound
from firearrow.spark_tools.tables.dataset import dataset, read, to_pandas
from firearrow.spark_tools.tables.polars_scan import scan_polars
from firearrow.spark_tools.tables.sql import StatementRefused, main, query, run_sql, to_duckdb
from firearrow.spark_tools.tables.tail import tail
from tests.spark.stores import KnownStore

TOPIC = "Orders"


def identity(row: dict[str, Any]) -> tuple[int, int, bytes, str | None]:
    return row["queueId"], row["queueOffset"], row["body"], row["tags"]


def known(store: KnownStore, tag: str | None = "") -> list[tuple[int, int, bytes, str | None]]:
    """`tag`: "" is any."""
    return sorted(
        (each.queue.queue_id, each.queue_offset, each.body, each.tags)
        for each in store.of(TOPIC)
        if tag in ("", each.tags)
    )


def test_each_message_once_with_all_columns(store: KnownStore) -> None:
    found = read(store.root, TOPIC)
    assert found.schema.names == list(ALL)
    assert sorted(map(identity, found.read_all().to_pylist())) == known(store)


def test_asked_columns_times_tags_and_keys(store: KnownStore) -> None:
    names = ("queueId", "queueOffset", "body", "tags")
    paid = read(store.root, TOPIC, tags="paid", columns=names).read_all()
    assert paid.schema.names == list(names)
    assert sorted(map(identity, paid.to_pylist())) == known(store, "paid")
    keyed = next(each for each in store.of(TOPIC) if each.keys)
    rows = read(store.root, TOPIC, keys=[keyed.keys[0]]).read_all().to_pylist()
    assert keyed.unique_id in {row["uniqKey"] for row in rows}
    assert read(store.root, TOPIC, until=1, columns=("queueId",)).read_all().num_rows == 0


def test_a_time_after_the_last_message_gives_no_rows(store: KnownStore) -> None:
    """Nor is it an error if a single queue has none."""
    assert read(store.root, TOPIC, since="2100-01-01", columns=("queueId",)).read_all().num_rows == 0
    times = read(store.root, TOPIC, columns=("storeTimestamp",)).read_all()["storeTimestamp"].to_pylist()
    newest = max(times)
    rows = read(store.root, TOPIC, since=newest, columns=("queueId",)).read_all()
    assert rows.num_rows == times.count(newest)
    with pytest.raises(InvalidOption, match="has no message stored at"):
        read(store.root, TOPIC, since="2100-01-01", startingOffsetsByTimestampStrategy="error")
    assert read(store.root, TOPIC, since=datetime(2020, 1, 1, tzinfo=UTC)).read_all().num_rows == len(
        known(store)
    )


def test_a_dataset_is_scanned_again_and_again(store: KnownStore) -> None:
    found = dataset(store.root, TOPIC)
    for _ in range(2):
        assert found.count_rows() == len(known(store))
    expected = [row for row in known(store) if row[0] == 1]
    some = found.to_table(columns=["queueId", "queueOffset", "body", "tags"], filter=pc.field("queueId") == 1)
    assert sorted(map(identity, some.to_pylist())) == expected
    assert found.to_table(columns={"n": pc.field("queueId")}).schema.names == ["n"]
    assert found.head(3).num_rows == 3
    assert str(found) == f"RocketMQDataset({store.root}: {TOPIC})"


def test_duckdb_reads_only_what_it_needs(store: KnownStore, monkeypatch: pytest.MonkeyPatch) -> None:
    orders, scans = dataset(store.root, TOPIC), []
    plain = type(orders).scan
    monkeypatch.setattr(type(orders), "scan", lambda self, *given: scans.append(given) or plain(self, *given))
    assert duckdb.sql("select count(*) from orders where tags in ('paid', 'x')").fetchall() == [
        (len(known(store, "paid")),)
    ]
    [(names, pushdown)] = scans
    assert "body" not in names
    assert pushdown.tags == {"paid", "x"}
    relation = to_duckdb(store.root, TOPIC)
    assert relation.filter("queueId = 1 and queueOffset < 5").project("queueOffset").order(
        "1"
    ).fetchall() == [(n,) for n in range(5)]


def test_polars_pushes_columns_filters_and_limits(store: KnownStore) -> None:
    frame = scan_polars(store.root, TOPIC)
    assert frame.collect_schema().names() == list(ALL)
    some = frame.filter(pl.col("tags") == "paid").select("queueId", "queueOffset", "body", "tags").collect()
    assert sorted(some.iter_rows()) == known(store, "paid")
    assert len(frame.head(7).collect()) == 7
    assert frame.filter(pl.col("queueOffset") < 2).select(pl.len()).collect().item() == 2 * 4
    assert TOPIC in frame.explain()


def test_pandas(store: KnownStore) -> None:
    found = to_pandas(store.root, TOPIC, columns=("queueId", "body"))
    assert list(found.columns) == ["queueId", "body"]
    assert len(found) == len(known(store))


def test_a_live_broker_has_the_same(broker: LocalBroker, topics: Callable[..., str]) -> None:
    topic = topics(2)
    with blocking.Producer("tables", name_server=broker.name_server) as producer:
        for n in range(20):
            producer.send(Message(topic, b"%d" % n, tags="AB"[n % 2]))
    found = read(broker.name_server, topic, tags=("A",), columns=("body",)).read_all()
    assert sorted(found["body"].to_pylist()) == sorted(b"%d" % n for n in range(0, 20, 2))
    statement = f'select tags, count(*) as n from "{topic}" group by tags order by tags'
    rows = query(statement, broker.name_server).read_all().to_pylist()
    assert rows == [{"tags": "A", "n": 10}, {"tags": "B", "n": 10}]


def test_a_tail_has_what_is_stored_later_and_nothing_twice(
    broker: LocalBroker, topics: Callable[..., str]
) -> None:
    topic = topics(1)

    def send(*bodies: bytes) -> None:
        with blocking.Producer("tables", name_server=broker.name_server) as producer:
            for body in bodies:
                producer.send(Message(topic, body))

    async def follow() -> list[bytes]:
        found: list[bytes] = []
        batches = tail(broker.name_server, topic, poll_s=0.05, columns=("body",), startingOffsets="earliest")
        async with asyncio.timeout(30):
            async for batch in batches:
                found += batch["body"].to_pylist()
                if len(found) == 2:
                    await asyncio.to_thread(send, b"3", b"4")
                if len(found) == 4:
                    break
        await batches.aclose()
        return found

    send(b"1", b"2")
    assert asyncio.run(follow()) == [b"1", b"2", b"3", b"4"]


def test_what_is_lost_fails_the_read_or_is_left_out(store: KnownStore, tmp_path: Path) -> None:
    root = store.copied(tmp_path)
    first = min((root / "commitlog").iterdir())
    first.unlink()
    with pytest.raises(DataLoss, match="messages are missing"):
        read(root, TOPIC, startingOffsets=json.dumps({TOPIC: {root.name: {"0": 0}}})).read_all()
    rest = read(root, failOnDataLoss=False, columns=("queueId",)).read_all()
    assert 0 < rest.num_rows < len(store.messages)


def test_what_cannot_be_read_is_refused_in_one_sentence(store: KnownStore, tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match="neither a folder nor HOST:PORT"):
        read(tmp_path / "nothing", TOPIC)
    with pytest.raises(InvalidOption, match="unknown column 'colour'"):
        read(store.root, TOPIC, columns=("colour",))
    with pytest.raises(InvalidOption, match="keys: 'a,b' contains ,"):
        read(store.root, TOPIC, keys=["a,b"])
    with pytest.raises(TopicNotFound, match="Nothing"):
        read(store.root, "Nothing")
    with pytest.raises(StatementRefused, match="give one SELECT"):
        query("create table x (a int)", store.root)
    with pytest.raises(StatementRefused, match=r"(?i)syntax error"):
        query("selec", store.root)
    with pytest.raises(StatementRefused, match=r"(?i)disabled"):
        query("select * from read_csv('/etc/passwd')", store.root)


def test_the_command(store: KnownStore, capfd: pytest.CaptureFixture[str]) -> None:
    path = f"--path={store.root}"
    assert (
        main([f"select tags, count(*) as n from {TOPIC} where tags = 'paid' group by tags", path, "--json"])
        == 0
    )
    assert json.loads(capfd.readouterr().out) == {"tags": "paid", "n": len(known(store, "paid"))}
    assert main([f"select body from {TOPIC} limit 1", path]) == 0
    assert json.loads(capfd.readouterr().out)["body"]
    assert main(["select 1 from Nothing", path]) == 1
    assert capfd.readouterr().err.startswith(f"firearrow sql: {store.root} has no topic 'Nothing'")
    assert main(["select", path]) == 2


def test_times_of_the_command(store: KnownStore, capfd: pytest.CaptureFixture[str]) -> None:
    """As those of other commands: `-1d`, and local times."""

    def count(*times: str) -> int:
        assert main([f"select count(*) as n from {TOPIC}", f"--path={store.root}", *times]) == 0
        return int(json.loads(capfd.readouterr().out)["n"])

    assert count("--from", "-30d") == len(known(store))
    assert count("--from", "+1h") == 0
    first = min(read(store.root, TOPIC, columns=("storeTimestamp",)).read_all()["storeTimestamp"].to_pylist())
    elsewhere = {**os.environ, "TZ": "Asia/Shanghai"}
    local = first.astimezone(ZoneInfo("Asia/Shanghai")).replace(tzinfo=None).isoformat()
    program = "import sys; from firearrow.spark_tools.tables.sql import main; main(sys.argv[1:])"
    arguments = (f"select count(*) as n from {TOPIC}", f"--path={store.root}", "--from", local)
    run = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env=elsewhere,
    )
    assert json.loads(run.stdout) == {"n": len(known(store))}
    assert main(["select 1", f"--path={store.root}", "--to", "sometime"]) == 2
    assert "'sometime' is not a time" in capfd.readouterr().err


def test_the_examples_of_the_command(broker: LocalBroker, capfd: pytest.CaptureFixture[str]) -> None:
    """Those of the page and of the help, as a shell reads them."""
    page = (Path(__file__).parents[2] / "docs/ARROW.md").read_text()
    examples = [
        shlex.split(line)[2:3]
        for text in (page, run_sql.__doc__ or "")
        for line in map(str.strip, text.splitlines())
        if line.startswith("firearrow sql ")
    ]
    topics = ("Orders", "my-orders")
    with blocking.Producer("tables", name_server=broker.name_server) as producer:
        for topic in topics:
            producer.send(Message(topic, b'{"price": 3}', tags="A"))
    found = []
    for each in examples:
        assert main([*each, "--namesrv", broker.name_server, "--json"]) == 0, capfd.readouterr().err
        found.append([*json.loads(capfd.readouterr().out).values()])
    assert found == [["A", 1], [3], ["A", 1], [3.0]]


def test_it_needs_neither_spark_nor_java(store: KnownStore) -> None:
    program = (
        "import sys; from firearrow.spark_tools.tables.dataset import read; "
        f"print(read({str(store.root)!r}, {TOPIC!r}).read_all().num_rows, 'pyspark' in sys.modules)"
    )
    python = shutil.which(sys.executable)
    assert python is not None
    run = subprocess.run([python, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert run.stdout.split() == [str(len(known(store))), "False"]


def test_a_reader_may_be_left_early(store: KnownStore) -> None:
    found = read(store.root, TOPIC, batchRows=10)
    assert isinstance(found.read_next_batch(), pa.RecordBatch)
    found.close()
