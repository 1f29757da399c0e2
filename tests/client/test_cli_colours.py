"""Colours: of states and severities on a terminal; none in pipes, in JSON, with NO_COLOR, or on a dumb terminal."""

import re
from collections.abc import Iterator

import pytest

from firearrow.client.cli.output import Colour, Column, Kind, Output
from tests.support.broker_process import BrokerProcess
from tests.support.command_line import here, on_terminal
from tests.support.consumer_groups import commit, make_group
from tests.support.requests import send

CODE = re.compile(r"\x1b\[[0-9;]*m")
RED, YELLOW = "\x1b[31m", "\x1b[33m"


@pytest.fixture(scope="module")
def name_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of a broker with a paused group whose messages wait, which the doctor warns of."""
    with (
        BrokerProcess(tmp_path_factory.mktemp("colours") / "store") as broker,
        broker.connect() as connection,
    ):
        assert send(connection, "T", b"x").code == 0
        assert broker.name_server is not None
        names = "{}:{}".format(*broker.name_server)
        here("group", "list", name_server=names).succeeded()
        make_group(connection, "paused")
        commit(connection, "paused", "T", 0, 0)
        here("group", "pause", "paused", "--yes", name_server=names).succeeded()
        yield names


COMMANDS = [
    (("group", "list"), f"{YELLOW}no\x1b[0m"),
    (("doctor",), f"{YELLOW}WARNING\x1b[0m group paused"),
]


@pytest.mark.parametrize(("words", "painted"), COMMANDS, ids=lambda value: str(value[0]))
def test_a_terminal_has_colours(name_server: str, words: tuple[str, ...], painted: str) -> None:
    _, shown = on_terminal(*words, "-n", name_server)
    assert painted in shown, shown
    plain = CODE.sub("", shown)
    assert "no" in plain


@pytest.mark.parametrize(("words", "painted"), COMMANDS, ids=lambda value: str(value[0]))
@pytest.mark.parametrize("variable", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_without_colours_the_text_is_the_same(
    name_server: str, words: tuple[str, ...], painted: str, variable: dict[str, str]
) -> None:
    _, shown = on_terminal(*words, "-n", name_server, environment=variable)
    assert "\x1b" not in shown
    assert CODE.sub("", painted) in shown


def test_pipes_and_json_have_none(name_server: str) -> None:
    for words, _ in COMMANDS:
        assert "\x1b" not in here(*words, name_server=name_server).out
        _, shown = on_terminal(*words, "--json", "-n", name_server)
        assert "\x1b" not in shown


def test_cells_stay_aligned(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Codes have no width, and spaces are not painted."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    output = Output(json=False)
    output.json, output.has_colours = False, True
    columns = (
        Column("state", "STATE", colour=lambda row: Colour.RED if row["state"] == "bad" else None),
        Column("count", "COUNT", Kind.COUNT, lambda row: Colour.YELLOW),
        Column("end", "END"),
    )
    rows = [{"state": "bad", "count": 1, "end": "x"}, {"state": "healthy", "count": 10_000, "end": "y"}]
    output.rows(columns, rows)
    painted = capsys.readouterr().out
    assert f"{RED}bad\x1b[0m      " in painted
    output.has_colours = False
    output.rows(columns, rows)
    assert CODE.sub("", painted) == capsys.readouterr().out
    assert output.painted("", Colour.RED) == ""
