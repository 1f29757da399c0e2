"""SQL92 expressions of push and pull consumers."""

import pytest

from tests.interop.conftest import Drivers
from tests.interop.driver import Driver, Failed
from tests.interop.messages import hexed

pytestmark = pytest.mark.interop

EXPRESSIONS = {
    "n > 3": {4, 5, 6, 7, 8, 9},
    "n BETWEEN 2 AND 4": {2, 3, 4},
    "n NOT BETWEEN 2 AND 8": {0, 1, 9},
    "parity = 'even' AND n <> 4": {0, 2, 6, 8},
    "parity IN ('odd', 'none') OR n = 0": {0, 1, 3, 5, 7, 9},
    "absent IS NULL AND n IS NOT NULL AND n < 2": {0, 1},
    "absent > 1 OR n = 7": {7},
    "NOT (n >= 1)": {0},
    "label CONTAINS '5'": {5},
    "label STARTSWITH 'nu' AND label ENDSWITH '6'": {6},
    "label NOT CONTAINS 'number' OR n = 1": {1},
    "n = 3.0": {3},
    "TRUE AND TAGS = 'b' AND n < 4": {1, 3},
}


@pytest.fixture(scope="module", params=["java5", pytest.param("java4", marks=pytest.mark.long), "python"])
def client(request: pytest.FixtureRequest, drivers: Drivers) -> Driver:
    return drivers(str(request.param))


def send_numbers(client: Driver, topic: str) -> None:
    for n in range(10):
        properties = {"n": n, "parity": "odd" if n % 2 else "even", "label": f"number {n}"}
        client.ask(
            "send",
            group=topic,
            topic=topic,
            how="queue",
            queue=0,
            tags="b" if n % 2 else "a",
            body=hexed(str(n)),
            **{f"property.{key}": value for key, value in properties.items()},
        )


def numbers(events: list[dict[str, object]]) -> list[int]:
    return [int(bytes.fromhex(str(event["body"]))) for event in events]


def test_a_push_consumer_filters(client: Driver, name: str) -> None:
    """What it failed on is redelivered through the same expression."""
    send_numbers(client, name)
    client.ask("consume", name=name, group=name, topic=name, sql="n > 6 AND parity = 'odd' OR again = 1")
    client.await_bodies([name], hexed("7", "9"))
    client.ask(
        "send", group=name, topic=name, body=hexed("10"), **{"property.again": 1, "property.failures": 1}
    )
    got = client.await_bodies([name], hexed("7", "9", "10", "10"))
    client.ask("stop", name=name)
    assert sorted(numbers(got)) == [7, 9, 10, 10]


def test_a_pull_consumer_filters(client: Driver, name: str) -> None:
    send_numbers(client, name)
    for sql, wanted in EXPRESSIONS.items():
        *found, pulled = client.ask("pull", topic=name, queue=0, sql=sql)
        assert numbers(found) == sorted(wanted), sql
        assert pulled["next"] == 10
    *found, pulled = client.ask("pull", topic=name, queue=0, sql="n > 100")
    assert (found, pulled["status"], pulled["next"]) == ([], "NO_MATCHED_MSG", 10)


@pytest.mark.parametrize("sql", ["n >", "n > > 3", "n BETWEEN 5 AND 2 AND", "= 3", "n IN ()"])
def test_what_cannot_be_read_is_refused(client: Driver, name: str, sql: str) -> None:
    """At the consumer's start, by CHECK_CLIENT_CONFIG."""
    client.ask("send", group=name, topic=name, body=hexed("makes the topic"))
    with pytest.raises(Failed) as refused:
        client.ask("consume", name=name, group=name, topic=name, sql=sql)
    assert refused.value.code == 23
