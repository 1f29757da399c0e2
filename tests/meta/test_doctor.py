"""docs/DOCTOR.md is up to date, and has every finding: checks make findings of declared troubles only."""

import ast
from pathlib import Path
from string import Formatter

import pytest

from firearrow.client.cli.doctor.checks import Check
from firearrow.client.cli.doctor.command import CHECKS
from tests.meta.doctor import DOCTOR, text

CODE = Path(__file__).resolve().parents[2] / "client/cli/doctor"


def test_doctor_md_is_generated() -> None:
    assert DOCTOR.read_text("utf-8") == text(), "run `python -m tests.meta.doctor`"


@pytest.mark.parametrize("path", sorted(CODE.glob("*_checks.py")), ids=lambda path: path.name)
def test_findings_are_declared_troubles(path: Path) -> None:
    """Each is in the troubles of the check that yields it, and there alone."""
    tree = ast.parse(path.read_text("utf-8"))
    called = {
        node.func.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert "Finding" not in called
    declared = [
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Call)
        and _name(node.value.func) == "Trouble"
        for target in node.targets
        if isinstance(target, ast.Name)
    ]
    listed = [
        _name(argument)
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
        for decorator in node.decorator_list
        if isinstance(decorator, ast.Call) and _name(decorator.func) == "finds"
        for argument in decorator.args
        if isinstance(argument, ast.Name)
    ]
    assert sorted(listed) == sorted(declared)


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else ""


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_each_trouble_has_cause_and_fix(check: Check) -> None:
    assert check.troubles
    for trouble in check.troubles:
        for template in (trouble.text, trouble.why, trouble.fix):
            assert template
            assert not template.endswith(".")
            assert all(name is None or name.isidentifier() for _, name, _, _ in Formatter().parse(template))
        assert trouble.worst is None or trouble.worst > trouble.severity
