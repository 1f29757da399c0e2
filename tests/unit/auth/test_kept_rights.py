"""AccessControl keeps rights: those of each user, and of each address by the entries that hold for it."""

import random
import time

import pytest

from firearrow._native.protocol.access_model import Acl, Action, Address, Resource, User, address_of
from firearrow._native.protocol.policy_decision import Need, Rights, decide
from firearrow.broker.auth import access_control, bodies
from firearrow.broker.auth.access_control import ENTRIES_KEPT_MAX, AccessControl, AccessSettings
from firearrow.broker.auth.bodies import ENTRIES_MAX
from firearrow.broker.auth.failed_logins import FailedLogins
from firearrow.broker.auth.tables import AclTable, UserTable

SOURCES = ("10.0.0.0/8", "10.1.0.0/16", "10.1.2.3", "::1", "11.0.0.1")
ADDRESSES = ("10.1.2.3", "10.1.2.4", "10.2.0.1", "11.0.0.1", "::1", "fe80::1", "")


class EmptyStore:
    """Facts of a broker without messages."""

    cluster = "DefaultCluster"
    names_lmqs = False

    def topic_at(self, _: int) -> None:
        return None


def control_of(*acls: dict[str, object]) -> tuple[AccessControl, AclTable]:
    """Users u0, u1 and so on, with these entries."""

    def changed() -> None:
        control.forget()

    users, table = UserTable(changed), AclTable(changed)
    control = AccessControl(
        AccessSettings(authorization=True),
        users,
        table,
        EmptyStore(),
        FailedLogins(time.monotonic),
        None,
        time.monotonic,
    )
    for n, acl in enumerate(acls):
        users.create(User(f"u{n}", "password"))
        table.update(f"u{n}", bodies.read_policies(acl))
    return control, table


def random_acl(dice: random.Random) -> dict[str, object]:
    entries = [
        {
            "resource": dice.choice(("Topic:a", "Topic:a*", "Topic:*", "*")),
            "actions": dice.choice((["Pub"], ["Sub"], ["All"])),
            "decision": dice.choice(("Allow", "Deny")),
            "sourceIps": dice.choice((None, dice.sample(SOURCES, 2))),
        }
        for _ in range(dice.randint(1, 6))
    ]
    return {"policies": [{"entries": entries}]}


@pytest.mark.parametrize("kept_max", [20, ENTRIES_KEPT_MAX])
def test_kept_rights_are_those_of_the_user_and_the_address(
    kept_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access_control, "ENTRIES_KEPT_MAX", kept_max)
    dice = random.Random(8)
    control, acls = control_of(*(random_acl(dice) for _ in range(20)))
    outcomes = set()
    for _ in range(20_000):
        user, address = f"u{dice.randrange(20)}", dice.choice(ADDRESSES)
        need = Need(Resource.topic(dice.choice("ab")), dice.choice((Action.PUB, Action.SUB)))
        if dice.random() < 0.005:
            acls.delete(user)
            if dice.random() < 0.8:
                acls.update(user, bodies.read_policies(random_acl(dice)))
        allowed = decide(acls.get(user), need, address_of(address)).allowed
        assert control.allows(user, [need], address) == allowed
        outcomes.add((address, allowed))
    assert len(outcomes) == 2 * len(ADDRESSES)


def test_many_addresses_share_rights(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each of 500 addresses, those of 1,000 entries would be more than are kept: each request would make them."""
    made: list[Address | None] = []

    def rights_of(acl: Acl | None, source: Address | None) -> Rights:
        made.append(source)
        return Rights(acl, source)

    monkeypatch.setattr(access_control, "Rights", rights_of)
    entries: list[dict[str, object]] = [
        {"resource": f"Topic:t{n}", "actions": ["Pub"], "decision": "Allow"} for n in range(ENTRIES_MAX)
    ]
    entries[0]["sourceIps"] = ["10.0.0.0/8"]
    control, _ = control_of({"policies": [{"entries": entries}]})
    need = Need(Resource.topic("t7"), Action.PUB)
    for n in range(1000):
        assert control.allows("u0", [need], f"10.0.{n % 2}.{n // 2 % 250}")
    assert made == [address_of("10.0.0.0")]
    assert control.allows("u0", [need], "11.0.0.1")
    assert made == [address_of("10.0.0.0"), address_of("11.0.0.1")]
