"""Our decisions about random rules are those of Apache's authorization module 5.5.0.

`python -m tests.interop.test_decisions COUNT` compares as many cases as wished.
"""

import json
import random
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from firearrow._native.protocol.access_model import Acl, Action, Resource, address_of
from firearrow._native.protocol.policy_decision import Need, Rights, decide, refusal_text
from firearrow.broker.auth import bodies
from tests.interop.driver import java
from tests.interop.toolchain import java_class_path, need
from tests.support.killing import killing

SHORT = 3000
NAMES = ("a", "ab", "abc", "b", "%RETRY%a", "A")
TYPES = ("Topic", "Group", "Cluster", "topic")
ACTIONS = ("All", "Pub", "Sub", "Create", "Update", "Delete", "Get", "List", "Unknown")
FAMILIES = (
    (
        ("127.0.0.1", "10.1.2.3", "10.0.0.0/8", "10.1.0.0/16", "0.0.0.0/0", "192.168.1.7/24", "10.1.2.3/32"),
        ("127.0.0.1", "10.1.2.3", "10.2.0.1", "192.168.1.200", "8.8.8.8"),
    ),
    (
        ("::1", "2001:db8::/32", "2001:db8:1::7", "2001:db8:1::ff/120", "::/0", "fe80::1/128"),
        ("::1", "2001:db8:1::7", "2001:db8:2::1", "fe80::1", "2002::1"),
    ),
)
"""Sources of rules, and addresses of clients of the same family: across families, Apache compares numbers."""


@contextmanager
def apache() -> Iterator["subprocess.Popen[str]"]:
    """Apache's module, which answers each line."""
    need(lambda: java_class_path("client5"))
    with tempfile.TemporaryDirectory() as home:
        command = java("client5", "Decisions", Path(home), "-Xmx128m")
        with killing(
            subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
        ) as process:
            yield process
            assert process.stdin is not None
            process.stdin.close()
            assert process.wait(30) == 0


def pattern(dice: random.Random) -> str:
    if dice.random() < 0.08:
        return "*"
    return f"{dice.choice(TYPES)}:{dice.choice((*NAMES, *(f'{name}*' for name in NAMES), '*', '*'))}"


def entry(dice: random.Random, sources: Sequence[str]) -> dict[str, object]:
    made: dict[str, object] = {
        "resource": pattern(dice),
        "actions": dice.sample(ACTIONS, dice.choice((1, 1, 2, 3))),
        "decision": dice.choice(("Allow", "Allow", "Deny")),
    }
    if dice.random() < 0.3:
        made["sourceIps"] = dice.sample(sources, dice.choice((1, 2)))
    return made


def policy(dice: random.Random, kind: str, sources: Sequence[str]) -> dict[str, object]:
    """Of equal resources, one: updateAcl replaces an entry of the same resource."""
    entries = {
        str(Resource.parse(str(made["resource"]))): made
        for made in (entry(dice, sources) for _ in range(dice.randint(1, 7)))
    }
    return {"policyType": kind, "entries": list(entries.values())}


def case(dice: random.Random) -> dict[str, Any]:
    kinds = dice.choice((("Custom",), ("Default",), ("Custom", "Default")))
    sources, addresses = dice.choice(FAMILIES)
    return {
        "acl": {"subject": "User:app", "policies": [policy(dice, kind, sources) for kind in kinds]},
        "resource": f"{dice.choice(TYPES[:3])}:{dice.choice(NAMES)}",
        "actions": dice.sample(ACTIONS[1:8], dice.choice((1, 1, 2, 3))),
        "ip": dice.choice(addresses),
    }


def ours(asked: dict[str, Any]) -> str:
    acl = Acl("app", {}).updated(bodies.read_policies(asked["acl"]))
    resource = Resource.parse(asked["resource"])
    assert resource is not None
    actions = Action(0)
    for name in asked["actions"]:
        actions |= Action.named(name) or Action(0)
    need_of = Need(resource, actions)
    verdict = decide(acl, need_of, address_of(asked["ip"]))
    reason = None if verdict.allowed else verdict.reason
    assert Rights(acl, address_of(asked["ip"])).reason(need_of) == reason, json.dumps(asked)
    return "allowed" if verdict.allowed else refusal_text("app", need_of, asked["ip"], verdict.reason)


def compare(count: int, seed: int) -> Counter[str]:
    """How often each outcome came. AssertionError: the first case that is decided differently."""
    dice = random.Random(seed)
    outcomes: Counter[str] = Counter()
    with apache() as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for _ in range(count):
            asked = case(dice)
            process.stdin.write(json.dumps(asked) + "\n")
            process.stdin.flush()
            theirs, mine = process.stdout.readline().rstrip("\n"), ours(asked)
            assert mine == theirs, json.dumps(asked)
            outcomes[mine.rpartition(", ")[2]] += 1
    return outcomes


def test_decisions_are_apaches() -> None:
    outcomes = compare(SHORT, seed=40)
    assert len(outcomes) == 3
    assert min(outcomes.values()) > SHORT // 50


if __name__ == "__main__":
    print(compare(int(sys.argv[1]), random.SystemRandom().randrange(1 << 32)))
