"""Celery's tasks per second on FireArrow and on Redis, side by side: `python -m bench.celery_tasks [COUNT]`.

Empty tasks without results are sent by one process, then one worker runs them all. Redis keeps nothing on disk. Needs
`redis-server` and the Python package `redis`.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.ports import free_port
from firearrow.client import LocalBroker

POOLS = (("threads", 4), ("prefork", 2))
APP = """
import os

from celery import Celery

import firearrow.client.integrations.kombu

app = Celery("bench", broker=os.environ["BROKER_URL"])
app.conf.update(task_ignore_result=True, worker_prefetch_multiplier=16)
done = os.open(os.environ["DONE"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)


@app.task
def nothing():
    os.write(done, b"x")
"""
SEND = """
import sys, time, app
app.nothing.delay()
count, begun = int(sys.argv[1]), time.perf_counter()
for _ in range(count):
    app.nothing.delay()
print(count / (time.perf_counter() - begun))
"""


def rates(folder: Path, url: str, pool: str, concurrency: int, count: int) -> tuple[float, float]:
    """Tasks sent and run per second."""
    done = folder / "done"
    done.unlink(missing_ok=True)
    (folder / "app.py").write_text(APP)
    environment = os.environ | {"BROKER_URL": url, "DONE": str(done)}
    sending = subprocess.run(
        [sys.executable, "-c", SEND, str(count)],
        cwd=folder, env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    words = ("-m", "celery", "-A", "app", "worker", "-P", pool, "-c", str(concurrency), "--without-mingle")
    worker = subprocess.Popen(
        [sys.executable, *words], cwd=folder, env=environment,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        while (first := done.stat().st_size) < count // 10:  # it has started
            time.sleep(0.002)
        begun = time.perf_counter()
        while done.stat().st_size <= count:
            time.sleep(0.002)
        return float(sending.stdout), (count + 1 - first) / (time.perf_counter() - begun)
    finally:
        worker.terminate()
        worker.wait(60)


@contextmanager
def redis() -> Iterator[str]:
    port = free_port()
    server = subprocess.Popen(
        ["redis-server", "--port", str(port), "--save", "", "--appendonly", "no"], stdout=subprocess.DEVNULL
    )
    try:
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        server.terminate()
        server.wait(60)


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 5000
    with LocalBroker() as broker, redis() as redis_url, tempfile.TemporaryDirectory() as folder:
        urls = {"FireArrow": f"rocketmq://{broker.name_server}", "Redis": redis_url}
        for pool, concurrency in POOLS:
            for name, url in urls.items():
                sent, ran = rates(Path(folder), url, pool, concurrency, count)
                print(f"{name:10} {pool:8} {concurrency}: {sent:6.0f} sent/s {ran:6.0f} run/s", flush=True)


if __name__ == "__main__":
    main()
