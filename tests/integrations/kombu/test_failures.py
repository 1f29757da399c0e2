"""Workers and brokers that die, tasks longer than the invisible time, forks and threads; and Celery's beat."""

import json
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Any

import kombu
import pytest

import firearrow.client.integrations.kombu  # noqa: F401 (registers the transport)
from firearrow.client import ClientError, ClientOptions, Credentials, LocalBroker, TlsOptions
from firearrow.client.blocking import Admin
from tests.auth.secured import ROOT as ROOT_USER
from tests.auth.secured import ROOT_PASSWORD
from tests.auth.secured import options as secured_options
from tests.integrations.kombu.conftest import SETTINGS
from tests.integrations.kombu.test_transport import publish, receive
from tests.integrations.kombu.workers import ROOT, Worker, application, lines, options
from tests.support.broker_process import BrokerProcess
from tests.support.certificates import CertificateFiles, settings
from tests.support.eventually import eventually

GET_S = 90
PATIENT = {"max_retries": 100, "interval_start": 0.1, "interval_step": 0.1, "interval_max": 0.5}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LocalBroker]:
    with LocalBroker(tmp_path / "store", settings=SETTINGS) as running:
        yield running


@pytest.fixture
def url(broker: LocalBroker) -> str:
    return f"rocketmq://{broker.name_server}"


def test_a_worker_outlives_its_broker(broker: LocalBroker, url: str, tmp_path: Path) -> None:
    """It runs what was sent before and after, and control and results work again."""
    path = tmp_path / "ran"
    with Worker(url, tmp_path, "one@first", "-c", "2") as worker, application(url) as module:
        worker.ready()
        running = module.record.delay(str(path), "running", 3)
        eventually(lambda: lines(path, "begin running"), GET_S)
        broker.kill()
        broker.start()
        results = [
            module.record.apply_async((str(path), f"after {number}"), retry_policy=PATIENT)
            for number in range(5)
        ]
        assert [result.get(timeout=GET_S) for result in results] == [f"after {number}" for number in range(5)]
        assert running.get(timeout=GET_S) == "running"
        assert eventually(lambda: module.app.control.ping(timeout=1), GET_S)
        assert len(lines(path, "begin running")) == 1


def test_another_worker_runs_the_task_of_one_that_died(url: str, tmp_path: Path) -> None:
    path, short = tmp_path / "ran", options(visibility_timeout=3)
    with Worker(url, tmp_path, "one@first", "-c", "1", **short) as first, application(url, **short) as module:
        first.ready()
        result = module.record.delay(str(path), "task", 5)
        eventually(lambda: lines(path, "begin"), GET_S)
        first.kill()
        with Worker(url, tmp_path, "two@second", "-c", "1", **short) as second:
            second.ready()
            assert result.get(timeout=GET_S) == "task"
    assert lines(path) == ["begin task", "begin task", "end task"]


@pytest.mark.parametrize("pool", ["prefork", pytest.param("solo", marks=pytest.mark.long)])
def test_a_long_task_runs_once(pool: str, url: str, tmp_path: Path) -> None:
    """Its message stays invisible, also while the pool keeps the thread of the worker busy, and those that wait."""
    path, short = tmp_path / "ran", options(visibility_timeout=1)
    with (
        Worker(url, tmp_path, "one@first", "-c", "1", pool=pool, **short) as first,
        Worker(url, tmp_path, "two@second", "-c", "1", pool=pool, **short) as second,
        application(url, **short) as module,
    ):
        first.ready()
        second.ready()
        results = [module.record.delay(str(path), f"task {number}", 4) for number in range(3)]
        assert [result.get(timeout=GET_S) for result in results] == [f"task {number}" for number in range(3)]
    assert len(lines(path, "begin")) == 3


def test_a_worker_that_stops_gives_back_what_it_has_not_begun(url: str, tmp_path: Path) -> None:
    path = tmp_path / "ran"
    with Worker(url, tmp_path, "one@first", "-c", "1", PREFETCH="8") as first, application(url) as module:
        first.ready()
        results = [module.record.delay(str(path), f"task {number}", 1) for number in range(6)]
        eventually(lambda: lines(path, "begin"), GET_S)
        first.stop()
        begun = len(lines(path, "begin"))
        assert begun == len(lines(path, "end")) < 6
        with Worker(url, tmp_path, "two@second", "-c", "4") as second:
            second.ready()
            assert [result.get(timeout=GET_S) for result in results] == [
                f"task {number}" for number in range(6)
            ]
    assert len(lines(path, "begin")) == 6


def test_beat_sends_what_is_due(url: str, tmp_path: Path) -> None:
    path = tmp_path / "ran"
    schedule = {
        "every": {
            "task": "tests.integrations.kombu.celery_app.record",
            "schedule": 0.5,
            "args": [str(path), "beat"],
        }
    }
    environment = {"CONFIGURATION": json.dumps({"beat_schedule": schedule})}
    with Worker(url, tmp_path, "one@first", "-c", "1") as worker:
        worker.ready()
        beat = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "celery",
                "-A",
                "tests.integrations.kombu.celery_app",
                "beat",
                "-s",
                str(tmp_path / "beat"),
            ],
            cwd=ROOT,
            env=os.environ | {"BROKER_URL": url} | environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            eventually(lambda: len(lines(path, "end")) >= 3, GET_S, worker.text)
        finally:
            beat.terminate()
            beat.wait(60)


def test_priorities_of_tasks(url: str, tmp_path: Path) -> None:
    """`task_queue_max_priority` makes a topic of type PRIORITY; also a task that waited for its ETA keeps it."""
    path, environment = tmp_path / "ran", {"PRIORITIES": "9", "PREFETCH": "1"}
    with application(url, **environment) as module:
        begun = time.time()
        delayed = module.record.apply_async((str(path), "delayed 8"), priority=8, countdown=1)
        results = [
            module.record.apply_async((str(path), f"task {priority}"), priority=priority)
            for priority in (1, 9, 4)
        ]
        time.sleep(max(begun + 3 - time.time(), 0))  # the broker has put the delayed one into its queue
        with Worker(url, tmp_path, "one@first", "-c", "1", pool="solo", **environment) as worker:
            worker.ready()
            for result in (delayed, *results):
                result.get(timeout=GET_S)
    assert lines(path, "begin") == ["begin task 9", "begin delayed 8", "begin task 4", "begin task 1"]


def in_child(connection: kombu.Connection, url: str, name: str, pipe: "Pipe[Any, Any]") -> None:
    """A connection of the parent connects again; one of the child is new; closing both leaves the parent's alone."""
    try:
        queue = kombu.Queue(name)
        publish(connection, queue, "by the parent's")
        with kombu.Connection(url) as own:
            publish(own, queue, "by its own")
        connection.release()
        pipe.send("done")
    except BaseException as error:
        pipe.send(repr(error))


def test_a_forked_child_uses_no_connection_of_its_parent(url: str) -> None:
    queue, context = kombu.Queue("forked"), multiprocessing.get_context("fork")
    with kombu.Connection(url) as connection:
        held: list[Any] = []
        publish(connection, queue, "before")
        with connection.Consumer(queue, on_message=held.append):
            connection.drain_events(timeout=20)
            ours, theirs = context.Pipe()
            child = context.Process(target=in_child, args=(connection, url, queue.name, theirs))
            child.start()
            assert ours.poll(60)
            assert ours.recv() == "done"
            child.join(60)
            assert child.exitcode == 0
            while len(held) < 3:
                connection.drain_events(timeout=20)
            for message in held:
                message.ack()
        assert sorted(message.payload for message in held) == ["before", "by its own", "by the parent's"]


def test_many_threads_send_at_once(url: str, tmp_path: Path) -> None:
    with application(url) as module, ThreadPoolExecutor(16) as threads:
        results = list(threads.map(lambda number: module.add.delay(number, 0), range(400)))
        with module.app.connection_for_read() as connection:
            assert len({result.id for result in results}) == 400
            assert len(receive_raw(connection, "celery", 400)) == 400


def receive_raw(connection: kombu.Connection, name: str, count: int) -> list[Any]:
    queue = kombu.Queue(name)
    return receive(connection, queue, count)


def test_an_idle_connection_uses_no_cpu(url: str) -> None:
    with kombu.Connection(url) as connection:
        queue = kombu.Queue("idle")
        with connection.Consumer(queue, callbacks=[lambda body, message: message.ack()]):
            begun = time.process_time()
            with pytest.raises(TimeoutError):
                connection.drain_events(timeout=3)
            assert time.process_time() - begun < 0.3


def test_a_login_over_tls_in_a_namespace(tmp_path: Path) -> None:
    files = CertificateFiles(tmp_path / "certificates")
    arguments = (
        *secured_options(),
        *files.arguments,
        *settings(server_mode="enforcing", server_authClient="false"),
    )
    with BrokerProcess(tmp_path / "store", *arguments) as process:
        assert process.name_server is not None
        server, tls = "{}:{}".format(*process.name_server), {"ca_certs": files.path("authority.pem")}
        queue = kombu.Queue("secrets")
        with kombu.Connection(
            f"rocketmqs://{ROOT_USER}:{ROOT_PASSWORD}@{server}/team", ssl=tls
        ) as connection:
            publish(connection, queue, "hello")
            assert receive(connection, queue, 1) == ["hello"]
            credentials = Credentials(ROOT_USER, ROOT_PASSWORD)
            authority = TlsOptions(authority=files.path("authority.pem"))
            with Admin(server, client=ClientOptions(credentials=credentials, tls=authority)) as admin:
                assert "team%secrets" in admin.topics()
        wrong = kombu.Connection(f"rocketmqs://{ROOT_USER}:wrong@{server}", ssl=tls)
        with wrong, pytest.raises(ClientError, match="signature"):
            publish(wrong, queue, "hello")


def test_the_client_is_not_imported_for_others() -> None:
    program = (
        "import sys, firearrow, firearrow.client, firearrow.client.blocking;"
        "firearrow.client.Producer;"
        "print([name for name in sys.modules if name.split('.')[0] in ('kombu', 'celery', 'amqp', 'gevent')])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_without_kombu_the_extra_is_named(tmp_path: Path) -> None:
    (tmp_path / "kombu.py").write_text("raise ModuleNotFoundError('No module named kombu', name='kombu')")
    done = subprocess.run(
        [sys.executable, "-c", "import firearrow.client.integrations.kombu"],
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr.strip().endswith("ImportError: kombu is not installed: pip install firearrow[celery]")


def test_the_dotted_path_needs_no_import(url: str) -> None:
    program = (
        "import sys, kombu;"
        f"c = kombu.Connection({url!r}, transport='firearrow.client.integrations.kombu:Transport');"
        "c.Producer().publish('x', routing_key='dotted', declare=[kombu.Queue('dotted')]); print(c.transport_cls)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "firearrow.client.integrations.kombu:Transport", done.stderr
