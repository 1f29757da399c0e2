"""RocketMQ's appender for Logback."""

import subprocess
from pathlib import Path

from firearrow.client.blocking import Admin
from tests.client.conftest import unique
from tests.interop.driver import java
from tests.interop.peers import Peer
from tests.interop.toolchain import java_class_path, need
from tests.neighbours.reading import read

LINES = 50


def test_log_lines_are_messages(peer: Peer, tmp_path: Path) -> None:
    need(lambda: java_class_path("logback"))
    topic = unique("log")
    with Admin(name_server=peer.name_server) as admin:
        admin.create_topic(topic, queues=2)
    words = [peer.name_server, topic, unique("appender"), "shop", str(LINES)]
    command = [*java("logback", "Log", tmp_path, "-Xmx128m"), *words]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-2000:]
    found = read(peer, topic, LINES + 1)
    bodies = sorted(message.body.decode().splitlines()[0] for message in found)
    last = "ERROR shop the lastjava.lang.IllegalStateException: Größe"
    assert bodies == sorted([last, *(f"INFO shop line {number}" for number in range(LINES))])
    assert {message.tags for message in found} == {"shop"}
