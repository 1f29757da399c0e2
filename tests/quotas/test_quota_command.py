"""`firearrow quota` sets, lists and deletes quotas of a broker."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from firearrow._native.wire.codes import RequestCode
from firearrow.client.cli.cluster.quota import main
from firearrow.client.cli.contexts import Context, Contexts, save_contexts
from tests.quotas.limited import BYTES_IN, IN, OUT, make_topic, quotas_of, send, set_quota
from tests.support.broker_process import BrokerProcess
from tests.support.client_socket import ClientSocket

Run = Callable[[str], tuple[int, list[dict[str, Any]], str]]


@pytest.fixture
def connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ClientSocket]:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    way = ("fastPath=true", "fastSockets=true")
    with BrokerProcess(tmp_path / "store", way=way) as broker, ClientSocket(broker.address) as opened:
        make_topic(opened)
        assert broker.name_server is not None
        save_contexts(Contexts("here", {"here": Context(namesrv="{}:{}".format(*broker.name_server))}))
        yield opened


@pytest.fixture
def quota(connection: ClientSocket, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(line: str) -> tuple[int, list[dict[str, Any]], str]:
        try:
            code = main(line.split())
        except SystemExit as exit_:
            code = int(exit_.code or 0)
        printed = capsys.readouterr()
        return code, [json.loads(row) for row in printed.out.splitlines()], printed.err

    return run


def test_set_list_and_delete(connection: ClientSocket, quota: Run) -> None:
    assert quota("set topic T --messages-in 10 --bytes-in 1MiB")[0] == 0
    assert quota("set topic T --messages-in 20")[0] == 0
    assert quota("set group * --messages-out 2k")[0] == 0
    rows = quotas_of(connection)
    assert rows["topic", "T"]["quotas"] == {IN: 20, BYTES_IN: 1 << 20}
    assert rows["group", "*"]["quotas"] == {OUT: 2000}
    for _ in range(25):
        send(connection)
    code, listed, _ = quota("list")
    assert code == 0
    by_quota = {(row["name"], row["quota"]): row for row in listed}
    assert by_quota["T", IN]["value"] == 20
    assert by_quota["T", IN]["delayed"] >= 4
    assert by_quota["*", OUT]["value"] == 2000
    assert quota("delete topic T")[0] == 0
    assert quota("delete group *")[0] == 0
    assert quotas_of(connection) == {}
    assert set_quota(connection, "topic", "T", **{IN: 1}).code == 0, "the name is free again"


def test_more_than_a_page_are_listed(connection: ClientSocket, quota: Run) -> None:
    names = [f"T{number:04}" for number in range(1100)]
    body = json.dumps({IN: 1000}).encode()
    sent = [
        connection.send_request(RequestCode.UPDATE_QUOTA, {"entity": "topic", "name": name}, body)
        for name in names
    ]
    for opaque in sent:
        assert connection.answer_to(opaque).code == 0
    set_quota(connection, "user", "*", **{IN: 10})
    code, listed, text = quota("list")
    assert code == 0
    assert [row["name"] for row in listed] == [*names, "*"]
    assert text == ""
    page = json.loads(connection.ask(RequestCode.GET_QUOTAS, {"limit": "2", "begin": "1098"}).body)
    assert ([row["name"] for row in page["quotas"]], page["more"], page["total"]) == (names[-2:], True, 1101)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("set topic T", "give at least one quota"),
        ("set topic T --messages-in some", "'some' is no number"),
        ("set topic T --connections 3", "has no quota 'connections'"),
        ("set address here --connections 3", "'here' is not an IP address"),
        ("set topic T --messages-in 0", "must be 1 to"),
    ],
)
def test_what_is_wrong(quota: Run, line: str, why: str) -> None:
    code, rows, text = quota(line)
    assert code != 0
    assert rows == []
    assert why in text
