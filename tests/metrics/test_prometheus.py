"""A real Prometheus scrapes a broker (the whole of `python -m tests.metrics.prometheus`, without the download)."""

import gzip
import re
from pathlib import Path

import pytest

from tests.metrics.prometheus import BOARD, ROOT, RULES, check, expressions, names_in, programs


def test_a_real_prometheus_scrapes_the_broker(tmp_path: Path) -> None:
    found = programs()
    if found is None:
        pytest.skip("there is no Prometheus: python -m tests.metrics.prometheus downloads Debian's")
    check(tmp_path, *found)


def test_the_board_asks_for_metrics_of_apache_and_ours() -> None:
    assert BOARD.exists()
    assert len(names_in(expressions())) > 20


def test_alerts_and_board_have_metrics_that_exist() -> None:
    document = (
        (ROOT / "docs/METRICS.md")
        .read_text("utf-8")
        .partition("Ours begin with")[2]
        .partition("## History")[0]
    )
    known = {f"firearrow_{name}" for name in re.findall(r"`([a-z_]+)`", document)}
    with gzip.open(Path(__file__).with_name("apache-5.5.0.prom.gz"), "rt") as scrape:
        known |= set(re.findall(r"^rocketmq_\w+", scrape.read(), re.MULTILINE))
    asked = names_in([*expressions(), *rules()])
    assert {"firearrow_thread_up", "firearrow_replicas_missing", "firearrow_sends_refused"} <= asked
    assert {
        re.sub(r"_(bucket|count|sum)$", "", name) if "firearrow" in name else name for name in asked
    } <= known


def rules() -> list[str]:
    """The expressions of the alerts."""
    return re.findall(r"expr:([\s\S]*?)\n        (?:for|labels):", RULES.read_text("utf-8"))
