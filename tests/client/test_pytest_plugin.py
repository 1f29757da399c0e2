"""What users of the plugin get: a real broker as a fixture, in a separate test run."""

import subprocess
import sys
from pathlib import Path

import pytest

from firearrow.client.local_broker import LocalBroker, LocalBrokerError

USERS_TEST = """
import asyncio
import socket

from firearrow.client import Message, Producer


def test_a_service_sends(firearrow_broker):
    async def send():
        async with Producer("orders", name_server=firearrow_broker.name_server) as producer:
            return await producer.send(Message("orders", b"hello"))

    assert asyncio.run(send()).queue_offset == 0


def test_a_broker_of_ones_own(firearrow_fresh_broker, firearrow_broker):
    assert firearrow_fresh_broker.address != firearrow_broker.address
    before = firearrow_fresh_broker.address
    firearrow_fresh_broker.kill()
    firearrow_fresh_broker.start()
    assert firearrow_fresh_broker.address == before
    host, port = before.split(":")
    socket.create_connection((host, int(port)), 1).close()
"""


TESTS_WITH_TOPICS = """
import threading
import time

import pytest

from firearrow.client import Message
from firearrow.client.blocking import Admin, Producer


@pytest.mark.parametrize("bodies", [[b"1"], [b"1", b"2", b"3"], [b"%d" % number for number in range(300)]])
def test_all_messages_in_their_order(firearrow_broker, firearrow_topic, messages_in, bodies):
    with Producer("orders", name_server=firearrow_broker.name_server) as producer:
        for body in bodies:
            producer.send(Message(firearrow_topic, body, tags="new"))
    for _ in range(2):  # the first call takes nothing away
        messages = messages_in(firearrow_topic, len(bodies))
        assert [message.body for message in messages] == bodies
        assert {(message.topic, message.tags) for message in messages} == {(firearrow_topic, "new")}


def test_messages_that_come_later_are_awaited(firearrow_broker, messages_in):
    def send():
        time.sleep(0.5)
        with Producer("orders", name_server=firearrow_broker.name_server) as producer:
            producer.send(Message("created-by-the-send", b"late"))

    thread = threading.Thread(target=send)
    thread.start()
    [message] = messages_in("created-by-the-send")
    thread.join()
    assert message.body == b"late"


def test_a_message_that_does_not_come(firearrow_topic, messages_in):
    assert messages_in(firearrow_topic, 0) == []
    with pytest.raises(AssertionError, match="has 0 messages after 0.2 s, not 1"):
        messages_in(firearrow_topic, timeout_s=0.2)


TOPICS = []


def test_a_topic_has_the_name_of_its_test(firearrow_topic):
    assert firearrow_topic.startswith("test_a_topic_has_the_name_of_its_test-")
    TOPICS.append(firearrow_topic)


def test_it_is_deleted_after_the_test(firearrow_broker, firearrow_topic):
    with Admin(firearrow_broker.name_server) as admin:
        assert firearrow_topic in admin.topics()
        assert not set(TOPICS) & set(admin.topics())
"""
PARALLEL_TEST = """
import os
import time
from pathlib import Path

import pytest

from firearrow.client import Message
from firearrow.client.blocking import Producer


@pytest.mark.parametrize("number", range(6))
def test_one(number, firearrow_broker, firearrow_topic, messages_in):
    with Producer("orders", name_server=firearrow_broker.name_server) as producer:
        for topic in (firearrow_topic, "orders"):
            producer.send(Message(topic, b"%d" % number))
    assert [message.body for message in messages_in(firearrow_topic)] == [b"%d" % number]
    worker = os.environ["PYTEST_XDIST_WORKER"]
    note = Path(__file__).with_name(f"{worker}-{number}.seen")
    note.write_text(f"{firearrow_broker.address} {len(messages_in('orders'))}")
    time.sleep(0.2)  # so that both workers get tests
"""


def run_pytest(folder: Path, *options: str, **tests: str) -> str:
    """The output of a run of users' tests with all warnings as errors, which must succeed. `tests`: file → text."""
    for name, text in tests.items():
        (folder / f"test_{name}.py").write_text(text)
    options = ("-q", "-W", "error", "-p", "no:cacheprovider", "--basetemp", str(folder / "tmp"), *options)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(folder)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_fixtures_are_there_without_any_setting(tmp_path: Path) -> None:
    """Those of a service, and of topics and their messages."""
    assert "9 passed" in run_pytest(tmp_path, service=USERS_TEST, topics=TESTS_WITH_TOPICS)


def test_each_xdist_worker_has_a_broker_of_its_own(tmp_path: Path) -> None:
    assert "6 passed" in run_pytest(tmp_path, "-n", "2", service=PARALLEL_TEST)
    notes: dict[str, list[tuple[str, int]]] = {}
    for path in tmp_path.glob("*.seen"):
        address, count = path.read_text().split()
        notes.setdefault(path.name.partition("-")[0], []).append((address, int(count)))
    assert len(notes) == 2
    addresses = [{address for address, _ in seen} for seen in notes.values()]
    assert [len(each) for each in addresses] == [1, 1]
    assert addresses[0] != addresses[1]
    for seen in notes.values():  # a shared topic holds the messages of this worker alone
        assert sorted(count for _, count in seen) == list(range(1, len(seen) + 1))


def test_the_plugin_does_not_load_the_client() -> None:
    """It is loaded in every pytest run on the machine."""
    program = "import sys, firearrow.client.pytest_plugin; print('firearrow.client.public' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", program], text=True).strip() == "False"


def test_a_broker_that_cannot_start_says_why(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("a file, not a folder")
    with pytest.raises(LocalBrokerError, match="store"):
        LocalBroker(tmp_path / "store")


def test_a_temporary_store_is_taken_away() -> None:
    with LocalBroker() as broker:
        folder = broker.store.parent
        assert folder.is_dir()
    assert not folder.exists()
