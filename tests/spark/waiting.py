"""Waits for a broker, also from within a worker of Spark."""

from firearrow.client import blocking

ASKED_MAX = 3000


def await_some(name_server: str, topic: str, count: int = 1, *, asked_max: int = ASKED_MAX) -> None:
    """Wait until the brokers have `count` messages of the topic."""
    with blocking.Admin(name_server=name_server) as admin:
        queues = admin.queues(topic)
        for _ in range(asked_max):
            if sum(admin.max_offset(queue) for queue in queues) >= count:
                return
    raise AssertionError(f"{topic}: {count} messages did not arrive")
