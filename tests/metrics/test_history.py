"""The history: its file over restarts, kills and a day; damage; request 30009."""

import os
import struct
import time
from pathlib import Path

import orjson
import pytest

from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow.broker.metrics.history import (
    FILE_BYTES,
    HEAD,
    NAME_TEXT_MAX,
    ROW_BYTES,
    ROWS,
    ROWS_AT,
    SERIES,
    STEP_MS,
    History,
)
from tests.metrics.scrapes import watched
from tests.support.broker_process import BrokerProcess
from tests.support.client_socket import ClientSocket
from tests.support.eventually import eventually
from tests.support.requests import send

T0 = 1_700_000_000_000 // STEP_MS * STEP_MS


def read(history: History, first: int, last: int, prefix: str = "") -> dict[str, list[float | None]]:
    """`first`, `last`: in steps from T0."""
    return history.read(T0 + first * STEP_MS, T0 + last * STEP_MS, history.names(prefix))


def test_rows_are_there_again_after_a_restart(tmp_path: Path) -> None:
    history = History(tmp_path / "history")
    assert history.was_made
    for step in range(4):
        if step != 2:
            history.write(T0 + step * STEP_MS + 37, {"a": float(step), "b": step / 2})
    history.close()
    again = History(tmp_path / "history")
    assert not again.was_made
    assert read(again, 0, 4) == {"a": [0, 1, None, 3, None], "b": [0, 0.5, None, 1.5, None]}
    assert read(again, 1, 1, "b") == {"b": [0.5]}
    again.close()


def test_a_day_later_the_ring_begins_again(tmp_path: Path) -> None:
    history = History(tmp_path / "history")
    for step in (0, 1, ROWS - 1, ROWS, 2 * ROWS + 1):
        history.write(T0 + step * STEP_MS, {"a": float(step)})
    found = read(history, 0, 2 * ROWS + 1)["a"]
    assert found[:2] == [None, None]  # overwritten
    assert (found[ROWS - 1], found[ROWS], found[2 * ROWS + 1]) == (ROWS - 1, ROWS, 2 * ROWS + 1)
    assert sum(value is not None for value in found) == 3
    assert os.stat(tmp_path / "history").st_size == FILE_BYTES
    assert os.stat(tmp_path / "history").st_blocks * 512 < 1 << 20  # sparse
    history.close()


def test_the_series_that_was_not_written_for_longest_makes_room(tmp_path: Path) -> None:
    history = History(tmp_path / "history")
    history.write(T0, {"old": 1.0, "older": 2.0})
    history.write(T0 + STEP_MS, {"old": 3.0})
    many = {f"s{number}": float(number) for number in range(SERIES - 1)}
    history.write(T0 + 2 * STEP_MS, {"old": 4.0, **many})
    assert len(history.names()) == SERIES
    assert "older" not in history.names()
    assert read(history, 0, 2, "old")["old"] == [1, 3, 4]
    assert [None, None, 0] in list(read(history, 0, 2, "s0").values())
    history.write(T0 + 3 * STEP_MS, {"x" * (NAME_TEXT_MAX + 1): 1.0, "old": 5.0})
    assert read(history, 3, 3, "old") == {"old": [5]}
    history.close()


def test_a_torn_row_has_no_values_and_a_foreign_file_is_made_again(tmp_path: Path) -> None:
    path = tmp_path / "history"
    history = History(path)
    for step in range(3):
        history.write(T0 + step * STEP_MS, {"a": float(step)})
    history.close()
    at = ROWS_AT + (T0 // STEP_MS + 1) % ROWS * ROW_BYTES
    with path.open("r+b") as file:
        file.seek(at + 16)
        file.write(struct.pack("<d", 77.0))
    torn = History(path)
    assert read(torn, 0, 2) == {"a": [0, None, 2]}
    torn.close()
    for damage in (
        b"",
        b"something else",
        path.read_bytes()[:-1],
        b"\0" * HEAD.size + path.read_bytes()[HEAD.size :],
    ):
        path.write_bytes(damage)
        made = History(path)
        assert made.was_made
        assert made.names() == {}
        made.close()


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"mine")
    (tmp_path / "history").symlink_to(tmp_path / "other")
    with pytest.raises(OSError, match="symbolic links"):
        History(tmp_path / "history")
    assert (tmp_path / "other").read_bytes() == b"mine"


def test_a_broker_records_and_answers_also_after_a_kill(tmp_path: Path) -> None:
    began_ms = time.time_ns() // 1_000_000
    with BrokerProcess(tmp_path / "store") as broker, broker.connect() as connection:
        for _ in range(50):
            send(connection, "T", b"x")
        # a busy machine may send some of them in the next step
        eventually(
            lambda: sum(value or 0 for value in history_of(connection, began_ms).get("in:T", ())) >= 4.9, 25
        )
        found = history_of(connection, began_ms)
        assert sum(value or 0 for value in found["in:T"]) == pytest.approx(5, abs=0.1)
        assert found["in.messages_per_s"]
        assert [value for value in found["connections"] if value]
        broker.kill()
    with watched(tmp_path / "store") as again, again.connect() as connection:
        assert history_of(connection, began_ms)["in:T"][: len(found["in:T"])] == found["in:T"]
        refused = connection.ask(RequestCode.GET_HISTORY, {"from": "9", "to": "3"})
        assert refused.code == ResponseCode.INVALID_PARAMETER
        assert connection.ask(RequestCode.GET_HISTORY, {"from": "-1"}).code == ResponseCode.INVALID_PARAMETER
        assert connection.ask(RequestCode.GET_HISTORY, {"from": "x"}).code == ResponseCode.SYSTEM_ERROR
        nothing = connection.ask(RequestCode.GET_HISTORY, {"series": "none of these"})
        assert orjson.loads(nothing.body)["series"] == {}


def history_of(connection: ClientSocket, began_ms: int) -> dict[str, list[float | None]]:
    answer = connection.ask(RequestCode.GET_HISTORY, {"from": str(began_ms)})
    assert answer.code == 0, answer.remark
    body = orjson.loads(answer.body)
    assert body["stepMs"] == STEP_MS
    return body["series"]  # type: ignore[no-any-return]
