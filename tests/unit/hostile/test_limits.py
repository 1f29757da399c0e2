"""The table of limits equals the code, each limit has its test, and none is missing."""

import ast

import pytest

from tests.hostile.code import ROOT, constants
from tests.hostile.limits import LIMITS, OTHERS, STORAGE, Limit, shown, unnamed, written


def test_the_table_equals_the_code() -> None:
    text = STORAGE.read_text("utf-8")
    assert text == written(text), "python -m tests.hostile.limits"


@pytest.mark.parametrize("limit", LIMITS, ids=lambda limit: limit.of)
def test_a_limit_has_a_value_and_a_test(limit: Limit) -> None:
    assert limit.value > 0
    path, _, name = limit.test.partition("::")
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    tests = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    assert name in tests if name else limit.of.rpartition(".")[2] in (ROOT / path).read_text("utf-8")


def test_no_limit_is_missing() -> None:
    assert not unnamed(), "a limit for input from outside belongs in limits.txt, with a test"


def test_excluded_constants_exist() -> None:
    for name in OTHERS:
        module, _, constant = name.rpartition(".")
        assert constant in constants(module), name


def test_bytes_are_shown_in_binary_units() -> None:
    by_name = {limit.of: shown(limit) for limit in LIMITS}
    assert by_name["com.rocketmq.remoting.frameMaxLength"] == "16 MiB"
    assert by_name["_native/store/files/layout.PROPERTIES_BYTES_MAX"] == "32,767"
    assert by_name["broker/net/dispatch.RUNNING_MAX"] == "10,000"
