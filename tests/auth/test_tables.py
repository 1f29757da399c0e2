"""Users and acls: their files, their limits, and what is refused."""

import json
import logging
import random
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firearrow._native.protocol.access_model import (
    Acl,
    Action,
    Decision,
    Pattern,
    PolicyEntry,
    PolicyType,
    Resource,
    ResourceType,
    User,
    UserStatus,
    UserType,
    address_of,
)
from firearrow._native.protocol.policy_decision import Need, Rights, decide
from firearrow.broker.auth import bodies
from firearrow.broker.auth.bodies import ENTRIES_MAX, PASSWORD_CHARS_MAX, SOURCES_MAX, TEXT_CHARS_MAX
from firearrow.broker.auth.request_rights import NEEDS_MAX
from firearrow.broker.auth.tables import USERS_MAX, AclTable, UserTable
from firearrow.broker.auth.user_access import SECRET_MODE
from firearrow.broker.base.errors import Refusal, StartError
from firearrow.broker.tables.config_file import ConfigFile
from tests.support.broker_process import BrokerProcess

PATTERNS = (Pattern.LITERAL, Pattern.PREFIXED)


def entry(resource: str = "Topic:a", *actions: str, **more: object) -> dict[str, object]:
    return {"resource": resource, "actions": list(actions or ("Pub",)), "decision": "Allow"} | more


def policies(*entries: dict[str, object], kind: str | None = None) -> dict[str, object]:
    return {"policies": [{"policyType": kind, "entries": list(entries)}]}


def acl(*entries: dict[str, object]) -> Acl:
    return Acl("app", {}).updated(bodies.read_policies(policies(*entries)))


def test_the_files_give_back_what_they_got() -> None:
    users, acls = UserTable(lambda: None), AclTable(lambda: None)
    users.create(User("b", "pw-\u00e9 \"'", UserType.SUPER))
    users.create(User("a", "x", status=UserStatus.DISABLE))
    acls.update(
        "a", bodies.read_policies(policies(entry("Topic:x*", "Pub", "Get", sourceIps=["10.0.0.0/8"])))
    )
    acls.update("a", bodies.read_policies(policies(entry("*", "All", decision="Deny"), kind="Default")))
    fresh_users, fresh_acls = UserTable(lambda: None), AclTable(lambda: None)
    fresh_users.load(users.to_json())
    fresh_acls.load(acls.to_json())
    assert list(fresh_users) == list(users) == [users.get("a"), users.get("b")]
    assert list(fresh_acls) == list(acls)
    assert fresh_acls.to_json() == acls.to_json()


@pytest.mark.parametrize(
    "text",
    [
        b"{",
        b"{}",
        b'{"users":{}}',
        b'{"users":null}',
        b'{"users":[{"username":"a"}]}',
        b'{"users":[{"password":"p"}]}',
        b'{"users":[1]}',
        b'{"users":[{"username":"a","password":"p","userStatus":"disabled"}]}',
        b'{"users":[{"username":"a","password":"p","userType":1}]}',
        b'{"users":[{"username":"a","password":"' + b"p" * (PASSWORD_CHARS_MAX + 1) + b'"}]}',
    ],
)
def test_a_malformed_users_file_changes_nothing(text: bytes) -> None:
    users = UserTable(lambda: None)
    users.create(User("a", "x"))
    with pytest.raises(ValueError):  # noqa: PT011 (each has another text)
        users.load(text)
    assert len(users) == 1


@pytest.mark.parametrize(
    "text",
    [
        b"[]",
        b'{"acls":null}',
        b'{"acls":[{"subject":"a"}]}',
        b'{"acls":[{"subject":"User:a"}]}',
        b'{"acls":[{"subject":"User:a","policies":[{"entries":[{"resource":"Topic:a","actions":["Pub"]}]}]}]}',
        b'{"acls":[{"subject":"User:a","policies":[{"entries":[{"resource":"T:a","actions":["Pub"],'
        b'"decision":"Allow"}]}]}]}',
    ],
)
def test_a_malformed_acls_file_changes_nothing(text: bytes) -> None:
    acls = AclTable(lambda: None)
    acls.update("a", bodies.read_policies(policies(entry())))
    with pytest.raises(ValueError):  # noqa: PT011 (each has another text)
        acls.load(text)
    assert acls.get("a") is not None


def test_a_damaged_file_stops_the_start(tmp_path: Path) -> None:
    file = ConfigFile(tmp_path / "users.json", mode=SECRET_MODE, strict=True)
    users = UserTable(lambda: None)
    assert not file.load(users.load)
    users.create(User("a", "x"))
    file.write(users.to_json())
    users.create(User("b", "x"))
    file.write(users.to_json())
    file.path.write_bytes(b"{")
    with pytest.raises(StartError, match=r"users\.json is damaged .*restore it from users\.json\.bak"):
        file.load(users.load)


def test_only_the_owner_reads_passwords(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = ConfigFile(tmp_path / "users.json", mode=SECRET_MODE, strict=True)
    users = UserTable(lambda: None)
    users.create(User("a", "secret-word"))
    for _ in range(2):
        file.write(users.to_json())
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}
    file.path.chmod(0o644)
    with caplog.at_level(logging.WARNING):
        assert file.load(users.load)
    assert "only its owner may read it now" in caplog.text
    assert file.path.stat().st_mode & 0o777 == 0o600
    assert "secret-word" not in repr(users.get("a"))


def test_users_are_bounded() -> None:
    users = UserTable(lambda: None)
    infos = b",".join(b'{"username":"u%d","password":"p"}' % n for n in range(USERS_MAX))
    users.load(b'{"users":[' + infos + b"]}")
    with pytest.raises(Refusal, match=f"there are {USERS_MAX} users already"):
        users.create(User("one more", "p"))
    with pytest.raises(ValueError, match=f"{USERS_MAX + 1} users, at most"):
        users.load(b'{"users":[' + infos + b',{"username":"more","password":"p"}]}')
    users.delete("u0")
    users.create(User("one more", "p"))


def test_names_and_passwords_are_bounded() -> None:
    info = {"password": "p" * PASSWORD_CHARS_MAX}
    assert bodies.read_user("u" * TEXT_CHARS_MAX, info).password == info["password"]
    with pytest.raises(Refusal, match=f"the username has {TEXT_CHARS_MAX + 1} characters"):
        bodies.read_user("u" * (TEXT_CHARS_MAX + 1), info)
    with pytest.raises(Refusal, match=f"the password has {PASSWORD_CHARS_MAX + 1} characters"):
        bodies.read_user("u", {"password": "p" * (PASSWORD_CHARS_MAX + 1)})
    with pytest.raises(Refusal, match="the resource has"):
        acl(entry("Topic:" + "t" * (TEXT_CHARS_MAX + 1)))


def test_an_initial_user_that_the_file_cannot_hold_stops_the_start(tmp_path: Path) -> None:
    initial = json.dumps({"username": "u" * (TEXT_CHARS_MAX + 1), "password": "p"})
    pairs = ("authenticationEnabled=true", f"initAuthenticationUser={initial}")
    with pytest.raises(Exception, match=f"the username has {TEXT_CHARS_MAX + 1} characters"):
        BrokerProcess(tmp_path / "store", *(word for pair in pairs for word in ("--set", pair)))


def test_policy_entries_of_a_user_are_bounded() -> None:
    many = [entry(f"Topic:t{n}") for n in range(ENTRIES_MAX)]
    acls = AclTable(lambda: None)
    acls.update("app", bodies.read_policies(policies(*many)))
    with pytest.raises(Refusal, match=f"{ENTRIES_MAX + 1} policy entries of one user"):
        acls.update("app", bodies.read_policies(policies(entry("Topic:more"))))
    with pytest.raises(ValueError, match=f"{ENTRIES_MAX + 1} policy entries"):
        bodies.read_policies(policies(*many, entry("Topic:more")))


def test_source_addresses_are_bounded() -> None:
    sources = ["10.0.0.1"] * SOURCES_MAX
    assert len(acl(entry(sourceIps=sources)).policies[PolicyType.CUSTOM][0].sources) == SOURCES_MAX
    with pytest.raises(ValueError, match=f"{SOURCES_MAX + 1} source addresses"):
        acl(entry(sourceIps=[*sources, "10.0.0.1"]))


@pytest.mark.parametrize(
    ("text", "resource"),
    [
        ("*", "*"),
        ("topic:a", "Topic:a"),
        ("GROUP:*", "Group:*"),
        ("Cluster:c*", "Cluster:c*"),
        ("Topic:a*b*", "Topic:a*"),
        ("Topic:", "Topic:"),
        ("Any:x", "*"),
        ("Nothing:a", None),
        (" ", None),
        ("", None),
    ],
)
def test_resource_texts(text: str, resource: str | None) -> None:
    parsed = Resource.parse(text)
    assert (None if parsed is None else str(parsed)) == resource


def test_changes_of_acls() -> None:
    first = acl(entry("Topic:a", "Pub"), entry("Topic:b", "Sub"))
    changed = first.updated(bodies.read_policies(policies(entry("Topic:a", "Get"), entry("Topic:c"))))
    texts = [(str(each.resource), each.granted) for each in changed.policies[PolicyType.CUSTOM]]
    assert texts == [("Topic:a", Action.GET), ("Topic:b", Action.SUB), ("Topic:c", Action.PUB)]
    without = changed.without(PolicyType.CUSTOM, Resource.topic("b")).without(
        PolicyType.CUSTOM, Resource.topic("c")
    )
    assert without.entries == 1
    assert without.without(PolicyType.CUSTOM, Resource.topic("a")).policies == {}
    assert first.entries == 2


def test_null_as_source_is_no_source() -> None:
    assert acl(entry(sourceIps=[None])).policies[PolicyType.CUSTOM][0].sources == ()


@pytest.mark.parametrize(
    ("source", "inside", "outside"),
    [
        ("::1", "0:0:0:0:0:0:0:1", "::2"),
        ("2001:0DB8:1:0::7", "2001:db8:1::7", "2001:db8:1::8"),
        ("2001:db8::/32", "2001:db8:ffff::1", "2001:db9::1"),
        ("10.0.0.0/8", "::ffff:10.1.2.3", "::ffff:11.1.2.3"),
        ("::/0", "fe80::1", "10.1.2.3"),
        ("0.0.0.0/0", "10.1.2.3", "fe80::1"),
    ],
)
def test_sources_of_ipv6(source: str, inside: str, outside: str) -> None:
    """As numbers of their family, in whatever form they are written."""
    resource = Resource.parse("Topic:a")
    assert resource is not None
    rules, need = acl(entry(sourceIps=[source])), Need(resource, Action.PUB)
    assert decide(rules, need, address_of(inside)).allowed
    assert not decide(rules, need, address_of(outside)).allowed


@given(seed=st.integers(0, 1 << 32))
def test_rights_are_the_decisions_of_all_entries(seed: int) -> None:
    dice = random.Random(seed)
    names = ("a", "ab", "abc", "abcd", "b", "ba", "")
    listed = [
        PolicyEntry(
            dice.choice([*map(Resource.parse, ("*", "Topic:*", "Any:x", "Any:x*")), None])
            or Resource(
                dice.choice((ResourceType.TOPIC, ResourceType.GROUP)),
                dice.choice(names),
                dice.choice(PATTERNS),
            ),
            tuple(dice.sample(list(Action), dice.randint(1, 3))),
            dice.choice(list(Decision)),
            dice.choice(((), (), ("10.0.0.0/8", "10.1.0.0/16"), ("::/0",), ("10.1.2.4",))),
        )
        for _ in range(dice.randint(0, 30))
    ]
    cut = dice.randint(0, len(listed))
    rules = Acl("app", {PolicyType.CUSTOM: tuple(listed[:cut]), PolicyType.DEFAULT: tuple(listed[cut:])})
    for source in map(address_of, ("10.1.2.3", "10.1.2.4", "11.0.0.0", "::1", "")):
        rights = Rights(rules, source)
        for _ in range(20):
            needed = Action(0)
            for action in dice.sample(list(Action), dice.randint(1, 2)):
                needed |= action
            need = Need(
                dice.choice((Resource.topic, Resource.group, Resource.cluster))(dice.choice(names) + "c"),
                needed,
            )
            verdict = decide(rules, need, source)
            assert rights.reason(need) == (None if verdict.allowed else verdict.reason)


@pytest.mark.parametrize("kind", ["literals", "prefixes", "sources"])
def test_a_request_is_decided_soon_whatever_the_rules(kind: str) -> None:
    """All others wait for it. Reading all entries for each right took from 7 to 1,600 s, and now 0.1."""
    made = {
        "literals": [entry(f"Topic:{n}", "Sub") for n in range(ENTRIES_MAX)],
        "prefixes": [entry(f"Topic:{'t' * (n % 250)}{n // 250}*", "Sub") for n in range(ENTRIES_MAX)],
        "sources": [
            entry(f"Topic:{n}*", "Sub", sourceIps=[f"10.{n % 250}.{i}.0/24" for i in range(20)])
            for n in range(ENTRIES_MAX)
        ],
    }
    rules = acl(*made[kind])
    needs = [Need(Resource.topic("t" * (n % 250) + str(n)), Action.SUB) for n in range(NEEDS_MAX)]
    begun = time.process_time()
    rights = Rights(rules, address_of("11.0.0.1"))
    for need in needs:
        rights.reason(need)
    assert time.process_time() - begun < 2
