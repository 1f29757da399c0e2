"""docs/PROTOCOL.md lists every request code of Apache's: those that the process serves, those that it sends to clients,
and those that it refuses, with the code of the response.
"""

import re
from pathlib import Path

import pytest

from firearrow._native.wire.codes import RequestCode, ResponseCode
from tests.support.broker_process import BrokerProcess
from tests.support.client_socket import ClientSocket

PROTOCOL = Path(__file__).resolve().parents[2] / "docs/PROTOCOL.md"
NAMED = re.compile(r"\b([A-Z][A-Z_0-9]+) (\d+)\b")
BROKER, NAME_SERVER, ASKED = (
    "Served by the broker",
    "Served by the name server",
    "Sent by the broker to its clients",
)
REFUSED = "Refused. Every code"


def part(title: str) -> str:
    """What follows this title: its line, then the table if there is one."""
    line, table = PROTOCOL.read_text("utf-8").split(f"\n{title}")[1].split("\n\n")[:2]
    return line if title == ASKED else table


def listed(text: str) -> set[int]:
    """The codes in it; their names are checked, too."""
    found = {int(code): name for name, code in NAMED.findall(text)}
    assert {code: RequestCode(code).name for code in found} == found
    return set(found)


def refusals() -> dict[int, int]:
    """Code → code of its answer."""
    rows = [line.split("|")[1:3] for line in part(REFUSED).splitlines()[2:]]
    return {code: int(answer) for answer, codes in rows for code in listed(codes)}


def test_every_code_is_listed_once() -> None:
    both = listed(part(BROKER)) | listed(part(NAME_SERVER)) | listed(part(ASKED))
    assert both.isdisjoint(refusals())
    assert both | refusals().keys() == {int(code) for code in RequestCode}


@pytest.mark.parametrize("inside", [True, False])
def test_listed_codes_are_served_and_refused(inside: bool, tmp_path: Path) -> None:
    brokers, name_servers = listed(part(BROKER)), listed(part(NAME_SERVER))
    options = () if inside else ("--namesrv-listen", "off")
    with BrokerProcess(tmp_path / "store", *options) as broker:
        assert served(broker.address) == (brokers | name_servers if inside else brokers)
        if inside:
            assert broker.name_server is not None
            assert served(broker.name_server) == name_servers


def test_refusals_have_their_code_and_reason(tmp_path: Path) -> None:
    """Whatever the request contains."""
    with BrokerProcess(tmp_path / "store") as broker, ClientSocket(broker.address) as connection:
        for code, wanted in refusals().items():
            for ext, body in (({}, b""), ({"topic": "T", "username": "u"}, b"{}"), ({"": "\x00"}, b"\xff")):
                answer = connection.ask(code, ext, body)
                assert answer.code == wanted, code
                assert answer.remark, code


def served(address: tuple[str, int]) -> set[int]:
    """Codes that are answered, and not with a refusal of the code itself."""
    with ClientSocket(address) as connection:
        return {
            int(code)
            for code in RequestCode
            if connection.ask(code).code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        } - refusals().keys()
