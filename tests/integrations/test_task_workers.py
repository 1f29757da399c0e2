"""Workers of taskiq and dramatiq as processes: several of them, one that is killed, stops, a broker that dies."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("taskiq")
pytest.importorskip("dramatiq")

from firearrow.client.local_broker import LocalBroker
from tests.integrations.workers import FRAMEWORKS, Workers
from tests.interop.peers import Peer
from tests.support.broker_process import WAYS, WITH_USERS, BrokerProcess
from tests.support.certificates import CertificateFiles
from tests.support.eventually import eventually

every_framework = pytest.mark.parametrize("framework", FRAMEWORKS)
one_framework = pytest.mark.parametrize(
    "framework", [FRAMEWORKS[0], *(pytest.param(each, marks=pytest.mark.long) for each in FRAMEWORKS[1:])]
)
"""What another framework repeats with the same parts of the client."""
WITHIN_S = 90
POOR = ("poor", "poor-word")
"""A user who may send to and consume from topics whose names begin with `granted`, and no more."""
RIGHTS = [
    {"resource": "Topic:granted*", "actions": ["Pub", "Sub"], "decision": "Allow"},
    {"resource": "Group:granted*", "actions": ["Sub"], "decision": "Allow"},
]


def create_poor(store: Path) -> None:
    tables = {
        "users": {"users": [{"username": POOR[0], "password": POOR[1], "userType": "Normal"}]},
        "acls": {
            "acls": [
                {"subject": f"User:{POOR[0]}", "policies": [{"policyType": "Custom", "entries": RIGHTS}]}
            ]
        },
    }
    (store / "config").mkdir(parents=True)
    for table, content in tables.items():
        file = store / "config" / f"{table}.json"
        file.touch(0o600)
        file.write_text(json.dumps(content))


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BrokerProcess, CertificateFiles]]:
    """With TLS, users and rules; topics are not created by sends."""
    folder = tmp_path_factory.mktemp("secured")
    files = CertificateFiles(folder / "certificates")
    create_poor(folder / "store")
    arguments = (*files.arguments, *WITH_USERS, "--set", "autoCreateTopicEnable=false")
    with BrokerProcess(folder / "store", *arguments, way=WAYS["engine"]) as broker:
        yield broker, files


def all_ended(workers: Workers, count: int) -> None:
    def ended() -> bool:
        return {step.number for step in workers.steps("end")} == set(range(count))

    eventually(ended, WITHIN_S, workers.text)


@every_framework
def test_the_tasks_of_a_killed_worker_go_to_another(
    framework: str, site: Peer, name: str, tmp_path: Path
) -> None:
    with Workers(framework, site.name_server, name, tmp_path) as workers:
        workers.send(16, 0.4)
        eventually(lambda: len({step.pid for step in workers.steps("end")}) == 2, WITHIN_S, workers.text)
        victim = workers.steps("start")[-1].pid
        workers.kill(victim)
        all_ended(workers, 16)
    ended = Counter(step.number for step in workers.steps("end"))
    started = Counter(step.number for step in workers.steps("start"))
    interrupted = [number for number, times in started.items() if times > 1 and ended[number] == 1]
    assert len(interrupted) <= 2
    assert sum(started.values()) - 16 <= 3  # one may have ended before its acknowledgement was sent


@every_framework
@pytest.mark.long
def test_a_stop_neither_loses_nor_doubles_tasks(
    framework: str, site: Peer, name: str, tmp_path: Path
) -> None:
    workers = Workers(framework, site.name_server, name, tmp_path)
    with workers:
        workers.send(20, 0.3)
        eventually(lambda: len(workers.steps("end")) >= 3, WITHIN_S, workers.text)
    before = len(workers.steps("start"))
    assert before == len(workers.steps("end"))
    with workers:
        all_ended(workers, 20)
    assert before < 20
    assert Counter(step.number for step in workers.steps("start")) == dict.fromkeys(range(20), 1)


@one_framework
def test_a_broker_that_dies_and_starts_again(
    framework: str, firearrow_fresh_broker: LocalBroker, name: str, tmp_path: Path
) -> None:
    broker = firearrow_fresh_broker
    with Workers(framework, broker.name_server, name, tmp_path) as workers:
        workers.send(20, 0.2)
        eventually(lambda: len(workers.steps("end")) >= 3, WITHIN_S, workers.text)
        broker.kill()
        broker.start()
        all_ended(workers, 20)


@one_framework
def test_users_tls_namespaces_and_several_name_servers(
    framework: str, secured: tuple[BrokerProcess, CertificateFiles], name: str, tmp_path: Path
) -> None:
    broker, files = secured
    assert broker.name_server is not None
    real = "{}:{}".format(*broker.name_server)
    client = {"authority": files.path("authority.pem"), "user": ["inner", "inner-word"]}
    queue = f"granted-{name}"
    missing = Workers(framework, real, queue, tmp_path, **(client | {"user": POOR}))
    with pytest.raises(
        AssertionError, match=f"topic {queue} does not exist, and cannot be created: .*grant it"
    ):
        missing.send(1, 0)
    rich = Workers(framework, f"127.0.0.1:1;{real}", queue, tmp_path, **client, namespace="shop")
    with rich:
        rich.send(4, 0)
        all_ended(rich, 4)
    rich.record.unlink()
    Workers(framework, real, queue, tmp_path, **client).send(1, 0)  # creates the topic
    poor = Workers(framework, real, queue, tmp_path, **(client | {"user": POOR}))
    with poor:
        poor.send(4, 3.5)
        all_ended(poor, 4)
    assert Counter(step.number for step in poor.steps("start")) == {0: 2, 1: 1, 2: 1, 3: 1}
