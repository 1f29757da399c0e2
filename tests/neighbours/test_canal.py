"""canal: flat messages in partitions by hash, and its connector, an orderly consumer that rolls back."""

import json
import subprocess
from collections import defaultdict
from pathlib import Path

from firearrow.client.blocking import Admin
from tests.client.conftest import unique
from tests.interop.driver import java
from tests.interop.peers import Peer
from tests.interop.toolchain import java_class_path, need
from tests.neighbours.reading import read

ROWS, VERSIONS, QUEUES = 40, 10, 4


def test_changes_of_a_row_stay_in_order(peer: Peer, tmp_path: Path) -> None:
    need(lambda: java_class_path("canal"))
    topic, group = unique("canal"), unique("canal")
    with Admin(name_server=peer.name_server) as admin:
        admin.create_topic(topic, queues=QUEUES)
    words = [peer.name_server, topic, group, str(ROWS), str(VERSIONS)]
    command = [
        *java("canal", "Canal", tmp_path, "-Xmx128m", "-Drocketmq.client.logRoot=" + str(tmp_path)),
        *words,
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["sent"] == found["received"] == ROWS * VERSIONS, found
    assert found["outOfOrder"] == 0
    assert found["rolledBack"] > 0
    stored = changes(peer, topic)
    assert all(versions == [str(version) for version in range(VERSIONS)] for versions in stored.values())
    assert len(stored) == ROWS


def changes(peer: Peer, topic: str) -> dict[tuple[int, str], list[str]]:
    """The versions of each row, by queue and row, as they are stored."""
    found: dict[tuple[int, str], list[str]] = defaultdict(list)
    for message in read(peer, topic, ROWS * VERSIONS):
        change = json.loads(message.body)
        assert (change["database"], change["type"] == "INSERT") == ("shop", change["id"] == 0)
        [row] = change["data"]
        found[message.queue_id, row["id"]].append(row["version"])
    return found
