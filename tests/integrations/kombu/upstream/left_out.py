"""The tests of kombu and Celery that do not fit this transport, each with the reason. A plugin of pytest."""

import os

import pytest

LOGS = "it expects log records of the worker 10 ms after the result"
TIMERS = "a task with an ETA waits at the broker, not in the worker, and request.eta is None"
CHORDS = "the database backend does not pass a failed header on to the next chord, for any broker; Redis does"
LEFT_OUT = {
    "test_failover_switches_to_alternate_url": (
        "the URLs are name servers of one cluster: a connection uses them all, and does not switch"
    ),
    "test_publish_requeue_consume": "a message that was given back comes later, and has no priority",
    "test_chord_header_id_duplicated_on_rabbitmq_msg_duplication": (
        "it sends a Python object as a property, which py-amqp drops and virtual transports cannot encode"
    ),
    "test_task_success": LOGS,
    "test_task_failed": LOGS,
    "test_scheduled": TIMERS,
    "test_group_or_task_countdown_delays_header": TIMERS,
}
WITHOUT_REDIS = {
    "test_header_failure_fails_the_chords_after_it": CHORDS,
    "test_header_failure_fails_the_chords_after_a_group_body": CHORDS,
    "test_error_propagates_from_chord": CHORDS,
}
"""Left out unless TEST_BACKEND is a Redis."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The command sets the limit of time: one of Celery's is shorter than what its test sleeps."""
    is_redis = os.environ["TEST_BACKEND"].startswith("redis")
    reasons = LEFT_OUT if is_redis else LEFT_OUT | WITHOUT_REDIS
    for item in items:
        item.own_markers = [marker for marker in item.own_markers if marker.name != "timeout"]
        reason = reasons.get(getattr(item, "originalname", item.name))
        if reason is not None:
            item.add_marker(pytest.mark.skip(reason=reason))
