"""The benchmark of clients with a minimal load: every row is reported, and so are errors."""

import shutil

import pytest

from bench import clients, held
from tests.client.conftest import unique


def test_a_tiny_run_gives_every_row() -> None:
    if missing := [tool for tool in ("cc", "taskset") if shutil.which(tool) is None]:
        pytest.skip(f"the bench needs {missing}")
    rows = clients.main(["--messages", "400", "--rounds", "1", "--clients", "firearrow", "--no-record"])
    assert [row["row"] for row in rows] == list((clients.ROWS | clients.BARE).values())
    assert all(isinstance(row["firearrow"], int) and row["firearrow"] > 0 for row in rows)


def test_a_client_that_fails_is_reported_with_its_output() -> None:
    with pytest.raises(RuntimeError, match="firearrow send"):
        clients.ours().run("send", "127.0.0.1:1", "t", 1)


async def test_a_consumer_with_small_thresholds_stays_within_them(name_server: str) -> None:
    """`python -m bench.held` runs it with a million."""
    found = await held.held(name_server, unique("held"), 20_000)
    assert found.within, found
    assert found.most > held.THRESHOLD, "it was really full"
