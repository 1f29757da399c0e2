"""One broker for the tests of a module, each with a topic and a group of its own."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.broker_process import BrokerProcess
from tests.support.grpc_caller import GrpcCaller

SETTINGS = (
    *("--set", "brokerName=broker-a", "--set", "timerPrecisionMs=100", "--set", "reviveInterval=100"),
    *("--set", "recallMessageEnable=true", "--set", "transactionCheckInterval=300"),
    *("--set", "transactionTimeOut=300", "--set", "enablePropertyFilter=true"),
    *("--set", "enableLmq=true", "--set", "enableMultiDispatch=true"),
)
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    folder: Path = tmp_path_factory.mktemp("grpc")
    with BrokerProcess(folder / "store", *SETTINGS) as running:
        yield running
        assert running.stop() == 0
        assert "Traceback" not in running.log.read_text()


@pytest.fixture
def caller(broker: BrokerProcess) -> Iterator[GrpcCaller]:
    with GrpcCaller(broker.address) as opened:
        yield opened


@pytest.fixture
def topic() -> str:
    return f"T{next(_numbers)}"


@pytest.fixture
def group(topic: str) -> str:
    return f"{topic}-g"
