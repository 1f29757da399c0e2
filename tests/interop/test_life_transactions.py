"""Messages in transactions: decided at once, decided by a check, never decided. The peer checks after a second."""

import pytest

from tests.interop.conftest import Drivers
from tests.interop.driver import Driver
from tests.interop.messages import hexed

pytestmark = pytest.mark.interop

COMMIT, ROLLBACK, UNKNOWN = "COMMIT_MESSAGE", "ROLLBACK_MESSAGE", "UNKNOW"


@pytest.fixture(scope="module", params=["java5", pytest.param("java4", marks=pytest.mark.long), "python"])
def client(request: pytest.FixtureRequest, drivers: Drivers) -> Driver:
    return drivers(str(request.param))


def transact(client: Driver, topic: str, body: str, first: str, checked: str = "", unknown: int = 0) -> None:
    properties = {"property.first": first, "property.unknown": unknown} | (
        {"property.checked": checked} if checked else {}
    )
    client.ask(
        "transact", group=f"{topic}-p", topic=topic, tags="t", keys="k", body=hexed(body), **properties
    )


def test_each_way_a_transaction_ends(client: Driver, name: str) -> None:
    client.ask("send", group=name, topic=name, body=hexed("makes the topic"))
    client.ask("consume", name=name, group=name, topic=name)
    transact(client, name, "committed", COMMIT)
    transact(client, name, "rolled back", ROLLBACK)
    transact(client, name, "committed when asked", UNKNOWN, COMMIT)
    transact(client, name, "rolled back when asked", UNKNOWN, ROLLBACK)
    transact(client, name, "asked twice", UNKNOWN, COMMIT, unknown=1)
    asked_of = f"{name}-p"
    client.await_bodies(
        [asked_of], hexed("committed when asked", "rolled back when asked", "asked twice", "asked twice"), 60
    )
    wanted = hexed("committed", "committed when asked", "asked twice")
    client.await_bodies([name], wanted)
    client.ask("stop", name=name)
    client.ask("stopTransactions", group=asked_of)
    got = [event for event in client.consumed(name) if event["body"] != hexed("makes the topic")[0]]
    assert sorted(event["body"] for event in got) == sorted(wanted)
    checks = client.consumed(asked_of)
    assert hexed("committed")[0] not in {check["body"] for check in checks}
    assert hexed("rolled back")[0] not in {check["body"] for check in checks}
    for event in got:
        assert (event["tags"], event["keys"], event["topic"]) == ("t", "k", name)
        assert event["properties"]["PGROUP"] == asked_of
        assert event["properties"]["TRAN_MSG"] == "true"
    [check] = [check for check in checks if check["body"] == hexed("committed when asked")[0]]
    assert check["topic"] == name
    assert check["transactionId"] == check["properties"]["UNIQ_KEY"]


def test_a_new_member_of_the_group_is_asked(client: Driver, name: str) -> None:
    """The sending producer is gone; another one of its group answers."""
    client.ask("send", group=name, topic=name, body=hexed("makes the topic"))
    transact(client, name, "orphan", UNKNOWN, COMMIT)
    client.ask("stopTransactions", group=f"{name}-p")
    client.ask("consume", name=name, group=name, topic=name)
    transact(client, name, "new", COMMIT)
    client.await_bodies([f"{name}-p"], hexed("orphan"))
    got = client.await_bodies([name], hexed("orphan", "new"))
    client.ask("stop", name=name)
    client.ask("stopTransactions", group=f"{name}-p")
    assert [event["body"] for event in got].count(hexed("orphan")[0]) == 1
