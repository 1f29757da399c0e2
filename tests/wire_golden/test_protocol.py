"""PROTOCOL.md lists the request codes that the process serves, neither more nor fewer."""

import re
from pathlib import Path

import pytest

from firearrow._native.wire.codes import RequestCode, ResponseCode
from tests.process.connection import Connection
from tests.process.running import Broker

PROTOCOL = Path(__file__).resolve().parents[2] / "PROTOCOL.md"
NAMED = re.compile(r"\b([A-Z][A-Z_0-9]+) (\d+)\b")


def listed(title: str) -> set[int]:
    """The codes of the table under this line; their names are checked on the way."""
    table = PROTOCOL.read_text("utf-8").split(f"\n{title}")[1].split("\n\n")[1]
    found = {int(code): name for name, code in NAMED.findall(table)}
    assert {code: RequestCode(code).name for code in found} == found
    return set(found)


@pytest.mark.parametrize("inside", [True, False])
def test_served_codes_are_listed(inside: bool, tmp_path: Path) -> None:
    brokers, name_servers = listed("Served by the broker"), listed("Served by the name server")
    options = () if inside else ("--namesrv-listen", "off")
    with Broker(tmp_path / "store", *options) as broker:
        assert served(broker.address) == (brokers | name_servers if inside else brokers)
        if inside:
            assert broker.name_server is not None
            assert served(broker.name_server) == name_servers


def served(address: tuple[str, int]) -> set[int]:
    with Connection(address) as connection:
        return {
            int(code)
            for code in RequestCode
            if connection.ask(code).code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        }
