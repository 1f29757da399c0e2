"""The comparison with peers, tiny: its figures tell nothing, but that every row still runs."""

import shutil

import pytest

from bench import compare, load


@pytest.fixture(autouse=True)
def tools() -> None:
    if missing := [tool for tool in ("cc", "taskset") if shutil.which(tool) is None]:
        pytest.skip(f"the bench needs {missing}")


def test_every_row_gives_figures() -> None:
    told = compare.main(["--part", "0.002", "--rounds", "1", "--without", "apache", "redis", "--no-record"])
    names = [row.name for row in compare.rows()]
    assert [row["row"] for row in told[: len(names)]] == names
    for row in told[: len(names)]:
        rates = [value for name, value in row.items() if name.startswith(("firearrow", "floor"))]
        assert rates
        assert all(isinstance(rate, int) and rate > 0 for rate in rates)


def test_a_refused_request_is_an_error() -> None:
    with pytest.raises(load.LoadError, match="Connection refused"):
        load.drive(("127.0.0.1", compare.servers.free_port()), [b"x"], connections=1, depth=1, requests=1)
