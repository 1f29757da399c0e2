"""A scrape of 1,000 topics with 100 groups each: what it takes of the loop, and how long other requests wait.

`python -m tests.metrics.large_scrape` prints the numbers. The loop's time is the CPU time of its thread.
"""

import json
import subprocess
import sys
import tempfile
import time
import zlib
from pathlib import Path
from typing import NamedTuple

from tests.metrics.scrapes import WatchedBroker
from tests.support.eventually import eventually
from tests.support.requests import send

TOPICS, GROUPS = 1000, 100
QUEUES = 1
SERIES_MAX = 50_000
REUSED_S = 12
QUEUE_LAG = b"\nfirearrow_consumer_queue_lag_messages{"


class Measured(NamedTuple):
    """Milliseconds of the loop's thread, of the whole scrape, and of the slowest and the median send meanwhile; bytes
    and lines of the text."""

    loop_ms: float
    scrape_ms: float
    slowest_ms: float
    median_ms: float
    text_bytes: int
    lines: int


def make_offsets(store: Path) -> None:
    """The offsets of all groups in all topics, as Apache's file has them."""
    table = {
        f"Topic{topic:04}@Group{group:03}": {str(queue): 0 for queue in range(QUEUES)}
        for topic in range(TOPICS)
        for group in range(GROUPS)
    }
    (store / "config").mkdir(parents=True)
    (store / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": table}))


def cpu_ns(broker: WatchedBroker) -> int:
    """CPU time of the loop's thread."""
    pid = broker.process.pid
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0])


def scrape(broker: WatchedBroker) -> bytes:
    """As Prometheus does: compressed."""
    status, _, body = broker.get("/metrics", Accept_Encoding="gzip")
    assert status == 200
    return zlib.decompress(body, 16 + zlib.MAX_WBITS)


def await_queues(broker: WatchedBroker) -> None:
    """Scrape until all queues are listed. The first scrape makes labels; the snapshot of lags may be that of the
    history, made before all topics had a message, and is used for 12 s."""
    wanted = min(TOPICS * GROUPS * QUEUES, SERIES_MAX - 1)
    eventually(lambda: scrape(broker).count(QUEUE_LAG) >= wanted, REUSED_S + 10)


def scraper(broker: WatchedBroker) -> subprocess.Popen[bytes]:
    """A process that scrapes once: in ours it would delay the sends whose latency is measured."""
    read = (
        "import http.client as h; c = h.HTTPConnection('127.0.0.1', {}); "
        "c.request('GET', '/metrics', headers={{'Accept-Encoding': 'gzip'}}); c.getresponse().read()"
    )
    return subprocess.Popen([sys.executable, "-c", read.format(broker.http_port)])


def sends_during(broker: WatchedBroker) -> list[float]:
    """The latency of one send after the other while the broker is scraped, in ms, sorted."""
    found = []
    with broker.connect() as connection, scraper(broker) as scraping:
        while scraping.poll() is None:
            began = time.perf_counter()
            assert send(connection, "Topic0000", b"x").code == 0
            found.append((time.perf_counter() - began) * 1000)
            time.sleep(0.0005)
        assert scraping.returncode == 0
    return sorted(found)


def measure(folder: Path) -> Measured:
    make_offsets(folder / "store")
    with WatchedBroker(folder / "store") as broker:
        with broker.connect() as connection:
            for topic in range(TOPICS):
                assert send(connection, f"Topic{topic:04}", b"x").code == 0
        await_queues(broker)
        began, before = time.perf_counter(), cpu_ns(broker)
        text = scrape(broker)
        loop_ms, scrape_ms = (cpu_ns(broker) - before) / 1e6, (time.perf_counter() - began) * 1000
        latencies = sends_during(broker)
        return Measured(
            loop_ms,
            scrape_ms,
            latencies[-1],
            latencies[len(latencies) // 2],
            len(text),
            text.count(b"\n"),
        )


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        print(measure(Path(folder)), file=sys.stdout)


if __name__ == "__main__":
    main()
