"""A real Prometheus scrapes a broker, evaluates our alert rules, and answers queries of the board.

`python -m tests.metrics.prometheus` runs it, with `prometheus` and `promtool` of PATH, or of the Debian package
`prometheus`, which is downloaded and unpacked, but not installed.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.parse
import urllib.request
from contextlib import suppress
from pathlib import Path

from bench.ports import free_port
from tests.metrics.scrapes import WatchedBroker
from tests.support.eventually import eventually
from tests.support.requests import pull, send

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "packaging" / "prometheus" / "firearrow-alerts.yaml"
BOARD = ROOT / "packaging" / "grafana" / "firearrow.json"
CONFIGURATION = """
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: ["{rules}"]
scrape_configs:
  - job_name: firearrow
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""
DEBIAN_FOLDER = Path(tempfile.gettempdir()) / "firearrow-prometheus"


def programs() -> tuple[str, str] | None:
    """`prometheus` and `promtool`; None: there are none."""
    path = f"{os.environ.get('PATH', '')}:{DEBIAN_FOLDER / 'usr' / 'bin'}"
    found = shutil.which("prometheus", path=path), shutil.which("promtool", path=path)
    return (found[0], found[1]) if found[0] and found[1] else None


def download() -> None:
    """Unpack Debian's package. CalledProcessError, FileNotFoundError: it cannot be had."""
    DEBIAN_FOLDER.mkdir(exist_ok=True)
    subprocess.run(["apt-get", "download", "-q", "prometheus"], cwd=DEBIAN_FOLDER, check=True, timeout=120)
    [package] = DEBIAN_FOLDER.glob("prometheus_*.deb")
    subprocess.run(["dpkg", "-x", package, DEBIAN_FOLDER], check=True)
    package.unlink()


class Prometheus:
    def __init__(self, folder: Path, program: str, scraped_port: int) -> None:
        self._port = free_port()
        configuration = folder / "prometheus.yml"
        configuration.write_text(CONFIGURATION.format(rules=RULES, port=scraped_port))
        command = [
            program,
            f"--config.file={configuration}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{self._port}",
        ]
        with (folder / "prometheus.log").open("wb") as log:
            self._process = subprocess.Popen(command, stderr=log)

    def __enter__(self) -> "Prometheus":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(20)

    def query(self, expression: str) -> dict[tuple[str, ...], float]:
        """Values by the labels' values, sorted by label."""
        url = f"http://127.0.0.1:{self._port}/api/v1/query?" + urllib.parse.urlencode({"query": expression})
        with urllib.request.urlopen(url, timeout=10) as answer:
            result = json.load(answer)["data"]["result"]
        return {
            tuple(text for _, text in sorted(one["metric"].items())): float(one["value"][1]) for one in result
        }

    def until(self, expression: str, wanted: float, within_s: float = 30) -> None:
        """Wait until the expression has one value, and this one."""

        def reached() -> bool:
            with suppress(OSError):
                return list(self.query(expression).values()) == [wanted]
            return False

        eventually(reached, within_s, f"{expression} is {wanted}")


def expressions() -> list[str]:
    """All queries of the board, with its variables replaced."""
    board = json.loads(BOARD.read_text())
    found = [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]
    return [text.replace("$__rate_interval", "1m").replace("$node", ".*") for text in found]


FIRING = {
    "FireArrowThreadEnded": ("firearrow_thread_up", {"thread": "flusher"}, 0),
    "FireArrowSavesLate": ("firearrow_table_save_late_seconds", {"table": "topics"}, 61),
    "FireArrowSendsRefused": ("firearrow_sends_refused", {}, 1),
    "FireArrowReplicaMissing": ("firearrow_replicas_missing", {}, 1),
    "FireArrowNotReady": ("firearrow_ready", {}, 0),
}
"""Alert → metric, labels and a value at which it fires."""


def rule_tests() -> dict[str, object]:
    """For `promtool test rules`: these alerts fire, and none fires at the value of a healthy broker."""
    tests: list[dict[str, object]] = []
    for alert, (metric, labels, value) in FIRING.items():
        series = metric + "{" + ",".join(f'{name}="{text}"' for name, text in labels.items()) + "}"
        firing = f'count(ALERTS{{alertname="{alert}",alertstate="firing"}})'
        for number in (value, 1 if value == 0 else 0):
            found = [{"labels": "{}", "value": 1}] if number == value else []
            tests.append(
                {
                    "interval": "1m",
                    "input_series": [{"series": series, "values": f"{number}x10"}],
                    "promql_expr_test": [{"expr": firing, "eval_time": "5m", "exp_samples": found}],
                }
            )
    return {"rule_files": [str(RULES)], "tests": tests}


def check(folder: Path, prometheus: str, promtool: str) -> None:
    subprocess.run([promtool, "check", "rules", RULES], check=True, stdout=subprocess.DEVNULL)
    (folder / "alerts.yml").write_text(json.dumps(rule_tests()))
    subprocess.run([promtool, "test", "rules", folder / "alerts.yml"], check=True)
    with WatchedBroker(folder / "store") as broker:
        with broker.connect() as connection:
            for number in range(7):
                assert send(connection, "Scraped", b"x", number % 2).code == 0
            assert pull(connection, "Scraped").code == 0
        assert remarks(promtool, broker.get("/metrics")[2]) == []
        with Prometheus(folder, prometheus, broker.http_port) as server:
            server.until("up", 1)
            server.until('rocketmq_messages_in_total{topic="Scraped"}', 7)
            server.until('sum(rocketmq_messages_out_total{topic="Scraped"})', 4)
            server.until("firearrow_ready", 1)
            known = {name for (name,) in server.query('group by (__name__) ({__name__=~".+"})')}
            for expression in expressions():
                server.query(expression)
            missing = names_in(expressions()) - known - OPTIONAL
            assert not missing, f"the board asks for what there is not: {missing}"
            broker.kill()
            server.until("up", 0)


def remarks(promtool: str, text: bytes) -> list[str]:
    """What `promtool check metrics` criticizes, without names that are Apache's."""
    checked = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, check=False)
    lines = (checked.stdout + checked.stderr).decode().splitlines()
    return [line for line in lines if not (line.startswith("rocketmq_") and "use base unit" in line)]


OPTIONAL = {
    "rocketmq_send_to_dlq_messages_total",
    "firearrow_retried_messages_total",
    "firearrow_refusals_total",
    "firearrow_dead_letters",
    "firearrow_connections",
    "rocketmq_half_messages",
    "rocketmq_timing_messages",
    "rocketmq_consumer_connections",
    "rocketmq_producer_connections",
    "rocketmq_commit_messages_total",
    "rocketmq_rollback_messages_total",
    "firearrow_requests_complete_total",
    "rocketmq_consumer_lag_messages",
    "rocketmq_consumer_lag_latency_milliseconds",
    "rocketmq_consumer_inflight_messages",
    "firearrow_consumer_queue_lag_messages",
    "firearrow_replica_in_sync",
    "firearrow_replica_lag_bytes",
    "firearrow_replica_lag_seconds",
    "firearrow_slave_following",
    "firearrow_slave_lag_bytes",
    "firearrow_slave_lag_seconds",
    "firearrow_redirected_messages_total",
    "firearrow_lowered_delay_levels_total",
    "firearrow_transactions_given_up_total",
}
"""Families that have no series before something happened, or on a broker without slaves."""


def names_in(texts: list[str]) -> set[str]:
    return {name for text in texts for name in re.findall(r"\b(?:rocketmq|firearrow)_[a-z_]+", text)}


def main() -> None:
    if programs() is None:
        download()
    found = programs()
    assert found is not None
    with tempfile.TemporaryDirectory() as folder:
        check(Path(folder), *found)
    print("a real Prometheus scraped the broker, and the rules and the board are sound", file=sys.stderr)


if __name__ == "__main__":
    main()
