"""Scrapes of a broker process, parsed by Prometheus's own client."""

import http.client
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open_metrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from tests.support.broker_process import BrokerProcess

COMMON = {
    "cluster": "DefaultCluster",
    "node_type": "broker",
    "node_id": "b",
    "otel_scope_name": "broker-meter",
}
OPEN_METRICS = "application/openmetrics-text; version=1.0.0"
Families = dict[str, tuple[str, dict[frozenset[tuple[str, str]], float]]]
"""Name of a sample → type of its family, and value by the labels that are not common."""


class WatchedBroker(BrokerProcess):
    """A broker that serves HTTP on a free port."""

    def __init__(self, store: Path, *args: str, environment: dict[str, str] | None = None) -> None:
        fixed = "--http", "127.0.0.1:0", "--set", "brokerName=b"
        super().__init__(store, *fixed, *args, environment=environment)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith(
            ("firearrow metrics: http://127.0.0.1:", "firearrow metrics: https://127.0.0.1:")
        ), line
        self.http_port = int(line.partition("127.0.0.1:")[2].partition("/")[0])

    def get(self, path: str, method: str = "GET", **headers: str) -> tuple[int, str, bytes]:
        """Status, content type and body."""
        connection = http.client.HTTPConnection("127.0.0.1", self.http_port, timeout=20)
        try:
            connection.request(method, path, headers={k.replace("_", "-"): v for k, v in headers.items()})
            answer = connection.getresponse()
            return answer.status, answer.headers.get("Content-Type", ""), answer.read()
        finally:
            connection.close()

    def scrape(self, *, open_metrics: bool = False) -> Families:
        headers = {"Accept": OPEN_METRICS} if open_metrics else {}
        status, content_type, body = self.get("/metrics", **headers)
        assert status == 200
        assert content_type.startswith(
            "application/openmetrics" if open_metrics else "text/plain; version=0.0.4"
        )
        return parsed(body.decode(), open_metrics=open_metrics)


def parsed(text: str, *, open_metrics: bool = False) -> Families:
    found: Families = {}
    for family in (parse_open_metrics if open_metrics else parse_text)(text):
        for sample in family.samples:
            labels = frozenset(pair for pair in sample.labels.items() if COMMON.get(pair[0]) != pair[1])
            if not sample.name.startswith("target"):
                assert sample.labels.items() >= COMMON.items(), sample
            of = found.setdefault(sample.name, (family.type, {}))[1]
            assert labels not in of, f"{sample} is there twice"
            of[labels] = sample.value
    return found


def value(families: Families, name: str, **labels: str) -> float:
    """The one value with these labels among others; 0 if there is none."""
    _, series = families.get(name, ("", {}))
    found = [number for own, number in series.items() if own >= labels.items()]
    assert len(found) <= 1, f"{name} {labels}: {series}"
    return found[0] if found else 0


@contextmanager
def watched(store: Path, *args: str) -> Iterator[WatchedBroker]:
    """It must end cleanly, and without a traceback in its log."""
    with WatchedBroker(store, *args) as broker:
        yield broker
        assert broker.stop() == 0
        assert "Traceback" not in broker.log.read_text()
