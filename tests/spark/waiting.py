"""Waits for a broker, also from within a worker of Spark."""

import time

from firearrow.client import blocking

POLL_S = 0.02


def await_some(name_server: str, topic: str, count: int = 1, *, within_s: float = 60) -> None:
    """Wait until the brokers have `count` messages of the topic."""
    deadline = time.monotonic() + within_s
    with blocking.Admin(name_server=name_server) as admin:
        queues = admin.queues(topic)
        while time.monotonic() < deadline:
            if sum(admin.max_offset(queue) for queue in queues) >= count:
                return
            time.sleep(POLL_S)
    raise AssertionError(f"{topic}: {count} messages did not arrive")
