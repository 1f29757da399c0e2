"""PROPERTY_RULES against the code: no property is acted on that the table does not have, on the fast path neither."""

import ast
import re
from pathlib import Path

import pytest

from firearrow.broker.base import property_rules
from firearrow.broker.base.message import Property
from firearrow.broker.base.property_rules import PROPERTY_RULES, Setter

ROOT = Path(__file__).resolve().parents[2]
NAMES = {name: value for name, value in vars(Property).items() if name.isupper()}
TABLE = {ROOT / "broker/base/message.py", ROOT / "broker/base/property_rules.py"}
NATIVE = ("_native/store", "_native/fastpath")
"""Here properties are compared as bytes."""
FAST_PATH, RECORD = ROOT / "_native/fastpath/send_properties.pyx", ROOT / "_native/store/log/record.pyx"


def used_in_python() -> dict[str, set[str]]:
    """Property → the modules of the broker that name it, by its constant or as a text."""
    found: dict[str, set[str]] = {}
    for path in (ROOT / "broker").rglob("*.py"):
        if path in TABLE:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and node.value.id == "Property"
            ):
                found.setdefault(NAMES[node.attr], set()).add(path.name)
            elif isinstance(node, ast.Constant) and node.value in NAMES.values():
                found.setdefault(node.value, set()).add(path.name)
    return found


def used_in_native() -> set[str]:
    texts = "".join(path.read_text() for folder in NATIVE for path in (ROOT / folder).rglob("*.pyx"))
    return {name for name in re.findall(r'b?"([A-Z0-9_a-z]+)(?:\\x01)?"', texts) if name in NAMES.values()}


def test_every_property_that_the_broker_acts_on_is_in_the_table() -> None:
    used = used_in_python()
    assert len(used) > 30
    assert used.keys() - PROPERTY_RULES.keys() == set()
    assert used_in_native() - PROPERTY_RULES.keys() == set()
    assert PROPERTY_RULES.keys() - used.keys() == set(), "nothing acts on these any more"


def test_no_property_is_named_past_its_constant() -> None:
    """Or the table would not see it: all names of Apache's MessageConst that the broker uses are constants."""
    pattern = re.compile(
        r'"(INNER_MULTI_[A-Z_]+|TIMER_[A-Z_]+|REAL_[A-Z]+|TRAN_[A-Z_]+|POP_CK|1ST_POP_TIME|DUP_INFO|INSTANCE_ID)"'
    )
    for path in (ROOT / "broker").rglob("*.py"):
        assert path in TABLE or set(pattern.findall(path.read_text())) <= set(NAMES.values()), path


def test_the_fast_path_leaves_what_needs_more_than_storing() -> None:
    source = FAST_PATH.read_text()
    names = re.search(r"SPECIAL = \[(.*?)\]", source, re.S)
    assert names is not None
    left = set(re.findall(r'"(\w+)"', names[1]))
    lengths = re.search(r"SPECIAL_LENGTHS = \[(.*?)\]", source)
    assert lengths is not None
    assert sorted(map(int, lengths[1].split(","))) == sorted(map(len, left))
    assert f"SPECIAL_COUNT = {len(left)}\n" in source
    slow = {name for name, rule in PROPERTY_RULES.items() if not rule.fast}
    assert {name for name in slow if not name.startswith("TIMER_")} == left
    assert b"TIMER_".decode() in source


def test_what_is_found_in_every_record_is_known() -> None:
    """Queues and the index act on properties of all records."""
    slots = set(re.findall(r'memcmp\(name, b"(\w+)"', RECORD.read_text()))
    assert slots == {
        *(
            "TAGS",
            "KEYS",
            "UNIQ_KEY",
            "DELAY",
            "INNER_MULTI_DISPATCH",
            "INNER_MULTI_QUEUE_OFFSET",
            "INNER_NUM",
        )
    }
    assert slots <= PROPERTY_RULES.keys()


@pytest.mark.parametrize("name", PROPERTY_RULES)
def test_each_has_its_right(name: str) -> None:
    rule = PROPERTY_RULES[name]
    assert rule.acts
    assert bool(rule.right) == (rule.setter is Setter.RIGHT)


def test_what_is_removed_is_the_brokers() -> None:
    removed = (
        *property_rules.NEVER_SENT,
        *property_rules.OF_INNER_BATCHES,
        *property_rules.OF_TIMER,
        *property_rules.OF_TRANSACTION,
    )
    assert {PROPERTY_RULES[name].setter for name in removed} == {Setter.BROKER}
    properties = dict.fromkeys((*removed, "KEYS"), "x")
    property_rules.remove(properties, removed)
    assert properties == {"KEYS": "x"}
