"""One broker without users and its console for the tests of a module."""

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests.console.running import ConsoleProcess, Visitor, fill
from tests.support.broker_process import BrokerProcess


class Site(NamedTuple):
    """`ids`: of the messages in the order in which they were sent."""

    broker: BrokerProcess
    console: ConsoleProcess
    ids: list[str]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("console")
    with BrokerProcess(
        folder / "store", "--set", "enablePropertyFilter=true", "--set", "recallMessageEnable=true"
    ) as broker:
        ids = fill(broker)
        assert broker.name_server is not None
        with ConsoleProcess(broker.name_server, folder) as console:
            yield Site(broker, console, ids)


@pytest.fixture
def visitor(site: Site) -> Iterator[Visitor]:
    with site.console.visitor() as made:
        yield made
