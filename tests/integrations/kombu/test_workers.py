"""Celery's workers as processes, two of them with different host names, against FireArrow's broker and Apache's."""

import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from celery import chain, group
from celery.exceptions import TaskRevokedError

from firearrow.client.integrations.kombu import dead_letter_topic
from tests.integrations.kombu.test_transport import dead_letters
from tests.integrations.kombu.workers import Worker, application, lines
from tests.interop.peers import Peer
from tests.support.eventually import eventually

GET_S = 60
HOSTS = ("one@first.example", "two@second.example")


class Site(NamedTuple):
    peer: Peer
    module: Any
    workers: tuple[Worker, Worker]
    folder: Path


@pytest.fixture(scope="module")
def celery_site(site: Peer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Two workers, in a pool of processes and in one of threads, and the app here."""
    url, folder = f"rocketmq://{site.name_server}", tmp_path_factory.mktemp("workers")
    with (
        Worker(url, folder, HOSTS[0], "-c", "2", "-E") as one,
        Worker(url, folder, HOSTS[1], "-c", "2", pool="threads") as two,
        application(url) as module,
    ):
        yield Site(site, module, (one.ready(), two.ready()), folder)
        one.stop()
        two.stop()


@pytest.fixture
def module(celery_site: Site) -> Any:
    return celery_site.module


def test_results_come_back(module: Any) -> None:
    results = [module.add.delay(number, 1) for number in range(50)]
    assert [result.get(timeout=GET_S) for result in results] == list(range(1, 51))
    with pytest.raises(ValueError, match="wrong"):
        module.fail.delay("wrong").get(timeout=GET_S)


def test_a_task_is_picked_up_at_once(module: Any) -> None:
    """An idle worker does not poll."""
    module.add.delay(1, 1).get(timeout=GET_S)
    took = []
    for _ in range(10):
        began = time.monotonic()
        module.add.delay(1, 1).get(timeout=GET_S)
        took.append(time.monotonic() - began)
    assert min(took) < 0.2


def test_chains_groups_and_retries(module: Any) -> None:
    add = module.add
    assert chain(add.s(1, 2), add.s(3), add.s(4))().get(timeout=GET_S) == 10
    assert group(add.s(number, number) for number in range(10))().get(timeout=GET_S) == list(range(0, 20, 2))
    assert module.again.delay().get(timeout=GET_S) == 2


def test_children_of_the_pool_send_tasks(module: Any) -> None:
    results = [module.spawn.apply_async((20,)) for _ in range(5)]
    assert [len(result.get(timeout=GET_S)) for result in results] == [20] * 5


def test_an_eta_is_a_timer_of_the_broker(module: Any) -> None:
    """The worker gets the task when it is due, and does not wait again, whatever its clock shows."""
    began = time.time()
    by_countdown = module.about.apply_async(countdown=3)
    by_eta = module.about.apply_async(eta=datetime.now(UTC) + timedelta(seconds=2))
    passed = module.about.apply_async(eta=datetime.now(UTC) - timedelta(hours=1))
    assert passed.get(timeout=GET_S)["at"] - began < 2
    scheduled = module.app.control.inspect(timeout=1).scheduled()
    assert sorted(scheduled) == sorted(HOSTS)
    assert not any(scheduled.values())
    for result, seconds in ((by_eta, 2), (by_countdown, 3)):
        found = result.get(timeout=GET_S)
        assert seconds - 0.2 < found["at"] - began < seconds + 5
        assert found["eta"] is None


def test_inspect_and_control_reach_all_hosts(module: Any, celery_site: Site) -> None:
    control = module.app.control
    assert sorted(host for reply in control.ping(timeout=2) for host in reply) == sorted(HOSTS)
    assert [list(reply) for reply in control.ping(destination=[HOSTS[1]], timeout=2)] == [[HOSTS[1]]]
    inspect = control.inspect(timeout=2)
    assert sorted(inspect.stats()) == sorted(HOSTS)
    replies = control.rate_limit(module.add.name, "100/s", reply=True, timeout=2)
    assert sorted(host for reply in replies for host in reply) == sorted(HOSTS)
    module.record.delay(str(celery_site.folder / "active"), "a", 4)
    active = eventually(lambda: [task for tasks in inspect.active().values() for task in tasks], 30)
    assert active[0]["name"] == module.record.name


def test_a_revoked_task_is_not_run(module: Any, celery_site: Site) -> None:
    """Of a task that waits for its ETA, the timer is recalled; a worker reports that it was revoked."""
    path = celery_site.folder / "revoked"
    began = time.monotonic()
    waiting = module.record.apply_async((str(path), "eta"), countdown=3600)
    waiting.revoke()
    with pytest.raises(TaskRevokedError):
        waiting.get(timeout=GET_S)
    assert time.monotonic() - began < 60
    # workers know that it is revoked before it comes
    soon = module.record.apply_async((str(path), "soon"), countdown=0.9)
    soon.revoke()
    with pytest.raises(TaskRevokedError):
        soon.get(timeout=GET_S)
    revoked = module.app.control.inspect(timeout=2).revoked()
    assert all({waiting.id, soon.id} <= set(ids) for ids in revoked.values())
    assert lines(path) == []


def test_rejected_tasks(module: Any, celery_site: Site) -> None:
    assert module.reject.delay(True).get(timeout=GET_S) is True
    before = dead_letters(celery_site.peer, "celery")
    module.reject.delay(False)
    eventually(
        lambda: dead_letters(celery_site.peer, "celery") == before + 1, 30, dead_letter_topic("celery")
    )


def test_events_reach_a_monitor(module: Any) -> None:
    found: list[str] = []
    with module.app.connection_for_read() as connection:
        receiver = module.app.events.Receiver(
            connection, handlers={"task-succeeded": lambda event: found.append(event["uuid"])}
        )
        monitor = threading.Thread(target=receiver.capture, daemon=True)
        monitor.start()
        sent: list[str] = []

        def is_found() -> bool:
            sent.append(module.add.delay(1, 1).id)
            return bool(found)

        eventually(is_found, 60)
        receiver.should_stop = True
        monitor.join(20)
        assert not monitor.is_alive()
    assert set(found) <= set(sent)


@pytest.mark.parametrize("pool", ["gevent", pytest.param("solo", marks=pytest.mark.long)])
def test_other_pools(pool: str, celery_site: Site, module: Any, tmp_path: Path) -> None:
    url = f"rocketmq://{celery_site.peer.name_server}"
    with Worker(url, tmp_path, f"{pool}@third", "-c", "4", "-Q", pool, pool=pool) as worker:
        worker.ready()
        results = [module.add.apply_async((number, 1), queue=pool) for number in range(50)]
        assert [result.get(timeout=GET_S) for result in results] == list(range(1, 51))
        assert module.app.control.ping(destination=[worker.hostname], timeout=5, limit=1)
        worker.stop()
