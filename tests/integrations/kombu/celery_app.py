"""The Celery app of the tests' workers: BROKER_URL, and OPTIONS in JSON for the transport."""

import json
import os
import time
from pathlib import Path

from celery import Celery, Task
from celery.exceptions import Reject

import firearrow.client.integrations.kombu  # noqa: F401 (registers the transport)

app = Celery("tests", broker=os.environ["BROKER_URL"], backend="rpc://")
app.conf.update(
    broker_transport_options=json.loads(os.environ.get("OPTIONS", "{}")),
    broker_connection_retry_on_startup=True,
    task_queue_max_priority=int(os.environ.get("PRIORITIES", "0")) or None,
    worker_prefetch_multiplier=int(os.environ.get("PREFETCH", "4")),
    worker_cancel_long_running_tasks_on_connection_loss=False,
    **json.loads(os.environ.get("CONFIGURATION", "{}")),
)


@app.task
def add(first: int, second: int) -> int:
    return first + second


@app.task(bind=True)
def about(self: Task) -> dict[str, object]:
    """When and where it ran."""
    return {
        "at": time.time(),
        "eta": self.request.eta,
        "worker": self.request.hostname,
        "redelivered": self.request.delivery_info["redelivered"],
    }


@app.task(acks_late=True)
def record(path: str, text: str, seconds: float = 0) -> str:
    """A line in a file before and after, so that a second run is seen."""
    with Path(path).open("a") as file:
        file.write(f"begin {text}\n")
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        time.sleep(0.05)
    with Path(path).open("a") as file:
        file.write(f"end {text}\n")
    return text


@app.task(bind=True, acks_late=True)
def reject(self: Task, requeue: bool) -> bool:
    """The second delivery succeeds."""
    if self.request.delivery_info["redelivered"]:
        return True
    raise Reject("as asked", requeue=requeue)


@app.task(bind=True, max_retries=3)
def again(self: Task) -> int:
    if self.request.retries < 2:
        raise self.retry(countdown=0.2)
    return int(self.request.retries)


@app.task
def fail(text: str) -> None:
    raise ValueError(text)


@app.task
def spawn(count: int) -> list[str]:
    """Tasks that send tasks, in a child of the prefork pool."""
    return [add.delay(number, number).id for number in range(count)]
