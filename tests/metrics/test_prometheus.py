"""A real Prometheus scrapes a broker (the whole of `python -m tests.metrics.prometheus`, without the download)."""

from pathlib import Path

import pytest

from tests.metrics.prometheus import BOARD, check, expressions, names_in, programs


def test_a_real_prometheus_scrapes_the_broker(tmp_path: Path) -> None:
    found = programs()
    if found is None:
        pytest.skip("there is no Prometheus: python -m tests.metrics.prometheus downloads Debian's")
    check(tmp_path, *found)


def test_the_board_asks_for_metrics_of_apache_and_ours() -> None:
    assert BOARD.exists()
    assert len(names_in(expressions())) > 20
