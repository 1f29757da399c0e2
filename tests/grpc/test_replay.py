"""The recorded conversations of Apache's clients with its proxy, replayed against our broker."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.grpc import recordings
from tests.grpc.conftest import SETTINGS
from tests.grpc.replay import Replay, prepare
from tests.support.broker_process import BrokerProcess

NOT_REPLAYED = {
    "probe-refusals": "in test_refusals",
    "probe-auth": "in test_refusals",
    "java-acl-ok": "needs the recording's users",
    "java-acl-refused": "needs the recording's users",
    "python-mqadmin": "what mqadmin did is not in it",
    "java-remoting-in": "the half of remoting is not in it",
    "java-remoting-out": "the half of remoting is not in it",
    "java-remoting-both": "the half of remoting is not in it",
}
ALL = [name for name in recordings.names() if name not in NOT_REPLAYED]
SHORT = [
    name
    for name in ALL
    if name.startswith(("java-", "python-")) and "renew" not in name and "dlq" not in name
]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("replay") / "store", *SETTINGS) as running:
        yield running
        assert running.stop() == 0
        assert "Traceback" not in running.log.read_text()


def replay(broker: BrokerProcess, name: str) -> str | None:
    """What differs; None: nothing."""
    running = Replay(broker.address)
    try:
        running.run(name)
    except Exception as error:  # reported with all others
        return f"{name} after {running.compared} answers: {type(error).__name__} {error}"
    return None if running.compared > 1 or "unknown-topic" in name else f"{name}: too little was compared"


def replay_all(broker: BrokerProcess, names: list[str]) -> None:
    with broker.connect() as connection:
        for name in names:
            prepare(connection, name)
    with ThreadPoolExecutor(12) as pool:
        different = [each for each in pool.map(lambda name: replay(broker, name), names) if each is not None]
    assert not different, "\n".join(different)


def test_conversations_of_java_and_python(broker: BrokerProcess) -> None:
    replay_all(broker, SHORT)


@pytest.mark.long
def test_conversations_of_all_clients(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "store", *SETTINGS) as running:
        replay_all(running, ALL)
        assert running.stop() == 0
