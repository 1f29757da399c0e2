"""`dump` and `stat`: the content of a store is printed as it is, with all filters, also what Apache wrote."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from firearrow.broker.maintenance.dump import host, time_text
from tests.golden import manifest, unpacked
from tests.maintenance.damaged import LOG_0, MESSAGES, body, files_of, made, overwrite
from tests.maintenance.tool import Ran, run
from tests.support.broker_process import BrokerProcess
from tests.support.requests import send

START_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dumped") / "store"
    made(folder)
    return folder


@pytest.fixture(scope="module")
def apache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpacked("store-apache", tmp_path_factory.mktemp("apache"))


def rows(ran: Ran) -> list[dict[str, Any]]:
    assert ran.code == 0, ran
    return [json.loads(line) for line in ran.out.splitlines()]


def bodies(*arguments: str | Path) -> list[str]:
    return [row["body"] for row in rows(run("dump", *arguments, "--json"))]


def text(number: int) -> str:
    return body(number).decode()


def test_all_records_are_dumped_in_the_logs_order(root: Path) -> None:
    before = files_of(root)
    assert bodies(root) == [text(number) for number in range(MESSAGES)]
    assert files_of(root) == before


def test_a_queue_is_dumped_from_an_offset(root: Path) -> None:
    assert bodies(root, "--topic", "Orders", "--queue", "1", "--from-offset", "40") == [text(121), text(124)]
    assert bodies(root, "--topic", "Orders", "--queue", "1", "--limit", "2") == [text(1), text(4)]
    assert bodies(root, "--topic", "Payments") == [text(number) for number in range(2, MESSAGES, 3)]


def test_records_are_selected_by_key_and_time(root: Path) -> None:
    assert bodies(root, "--key", "k3") == [text(number) for number in range(3, MESSAGES, 7)]
    assert bodies(root, "--key", f"{77:032X}") == [text(77)]
    chosen = bodies(root, "--since", str(START_MS + 5), "--until", "2023-11-14T22:13:20.008Z")
    assert chosen == [text(5), text(6), text(7)]
    assert bodies(root, "--since", "2024-01-01") == []


def test_bodies_are_shown_as_requested(root: Path, tmp_path: Path) -> None:
    [row] = rows(run("dump", root, "--limit", "1", "--json", "--body", "hex"))
    assert row["body"] == body(0).hex()
    [row] = rows(run("dump", root, "--limit", "1", "--json", "--body", "none"))
    assert "body" not in row
    [row] = rows(
        run("dump", root, "--limit", "1", "--json", "--body", "file", "--body-folder", tmp_path / "out")
    )
    assert Path(row["body"]).read_bytes() == body(0)
    assert run("dump", root, "--body", "file").code == 2
    ran = run("dump", root, "--limit", "1")
    assert "Orders:0:0  2023-11-14T22:13:20.000Z" in ran.out
    assert f"UNIQ_KEY={0:032X} KEYS=k0 TAGS=t0  body 0" in ran.out


def test_every_record_of_apache_is_dumped_as_in_its_manifest(apache: Path) -> None:
    queues_of_apache = manifest("store-apache")
    expected = {
        each["physicalOffset"]: (
            each["topicInRecord"],
            each["queueIdInRecord"],
            each["storeTimestamp"],
            each["bornHost"],
        )
        for topic in queues_of_apache["topics"]
        for queue in topic["queues"]
        for each in queue["messages"]
    }
    found = {
        row["physicalOffset"]: (row["topic"], row["queueId"], row["storeTimestamp"], row["bornHost"])
        for row in rows(run("dump", apache, "--json", "--body", "none"))
    }
    assert {position: found[position] for position in expected} == expected


def test_entries_index_and_checkpoint_are_dumped(root: Path) -> None:
    entries = rows(run("dump", root, "--queue-entries", "--topic", "Orders", "--queue", "0", "--json"))
    records = rows(run("dump", root, "--topic", "Orders", "--queue", "0", "--json"))
    assert [(row["queueOffset"], row["physicalOffset"], row["size"]) for row in entries] == [
        (row["queueOffset"], row["physicalOffset"], row["size"]) for row in records
    ]
    index = rows(run("dump", root, "--index", "--json"))
    assert sum(row["entries"] for row in index) == 3 * MESSAGES
    assert {row["slots"] for row in index} == {10}
    [checkpoint] = rows(run("dump", root, "--checkpoint", "--json"))
    assert checkpoint["physic_ms"] == START_MS + MESSAGES - 1
    assert "physic_ms=" in run("dump", root, "--checkpoint").out


def test_what_cannot_be_read_is_reported_and_skipped(tmp_path: Path) -> None:
    positions = made(tmp_path / "store")
    overwrite(tmp_path / "store" / LOG_0, positions[4] + 4, b"\xee" * 4)
    ran = run("dump", tmp_path / "store", "--json")
    assert [json.loads(line)["body"] for line in ran.out.splitlines()] == [
        text(number) for number in range(MESSAGES) if number != 4
    ]
    assert f"from {positions[4]} to {positions[5]}: bytes that are not a record" in ran.err
    queue = run("dump", tmp_path / "store", "--topic", "Orders", "--queue", "1", "--json")
    assert len(queue.out.splitlines()) == MESSAGES // 3 - 1
    assert f"entry 1 refers to {positions[4]}" in queue.err


def test_wrong_usage_is_named(root: Path) -> None:
    for wrong in (
        ["--queue-entries"],
        ["--index", "--checkpoint"],
        ["--since", "yesterday"],
        ["--queue", "-1"],
    ):
        assert run("dump", root, *wrong).code == 2
    ran = run("dump", root, "--topic", "Nobody", "--queue", "0")
    assert (ran.code, ran.out) == (3, "")
    assert "has no queue 0 of 'Nobody'" in ran.err
    assert run("dump", root / "nowhere").code == 3
    assert run("stat", root / "nowhere").code == 3


def test_message_content_does_not_control_the_terminal(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "store") as broker:
        with broker.connect() as connection:
            assert send(connection, "Orders", b"\x1b[2Jgone\nnext").code == 0
        live = run("dump", broker.store, "--topic", "Orders")
        assert "·[2Jgone·next" in live.out
        assert live.out.count("\n") == 1
        report = run("stat", broker.store, "--json").report
        assert report["log"]["records"] >= 1
        assert broker.stop() == 0


def test_a_closed_pipe_is_no_error(root: Path) -> None:
    program = "import sys; from firearrow.client.cli.main import main; main()"
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-c", program, "store", "dump", str(root)],
        stdout=writing,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")


# ---- stat ----


def test_stat_counts_what_was_written(root: Path) -> None:
    report = run("stat", root, "--json").report
    assert report["log"]["records"] == MESSAGES
    assert {(row["topic"], row["queueId"]): row["messages"] for row in report["queues"]} == {
        ("Orders", 0): 42,
        ("Orders", 1): 42,
        ("Payments", 0): 42,
    }
    assert {row["topic"]: row["messages"] for row in report["topics"]} == {"Orders": 84, "Payments": 42}
    assert report["times"] == {"first": START_MS, "last": START_MS + MESSAGES - 1}
    assert report["files"] == {
        "segment_bytes": 4096,
        "queue_file_bytes": 200,
        "batch_queue_file_bytes": 13_800_000,
        "index_slots": 10,
        "index_entries": 20,
    }
    lag = {row["queue_id"]: row["lag"] for row in report["groups"] if row["group"] == "G"}
    assert lag == {0: 37, 1: 35}
    records = sum(row["size"] for row in rows(run("dump", root, "--json")))
    assert report["log"]["recordBytes"] == records
    assert report["waste"]["unreached"] == report["log"]["end"] - records
    assert report["sizes"]["commitlog"][0] == report["log"]["files"] * 4096
    shown = run("stat", root).out
    assert "Orders:0  0 to 42  42" in shown
    assert "G  Orders:0  5 of 42  37" in shown


def test_stat_of_apaches_store_equals_its_manifest(apache: Path) -> None:
    report = run("stat", apache, "--json").report
    queues_of_apache = manifest("store-apache")
    ends = {(row["topic"], row["queueId"]): row["end"] for row in report["queues"]}
    for topic in queues_of_apache["topics"]:
        for queue in topic["queues"]:
            if queue["maxOffset"] > 0:
                assert ends[topic["topic"], queue["queueId"]] == queue["maxOffset"]
    assert report["versions"]["topics.json"]["counter"] > 0


def test_hosts_and_times_are_formatted_for_people() -> None:
    assert host(bytes((10, 0, 0, 7)) + (9876).to_bytes(4, "big")) == "10.0.0.7:9876"
    assert host(bytes(15) + b"\1" + (1).to_bytes(4, "big")) == "[::1]:1"
    assert time_text(-1) == "-1 ms"
    assert time_text(1 << 62) == f"{1 << 62} ms"
