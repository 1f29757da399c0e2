"""A warning asks someone to act; what the broker does by itself is an info, which is shown by default."""

import re

from firearrow.broker.base.arguments import broker_parser
from tests.meta.test_layout import ROOT, sources

WARNINGS_MAX = 63
BY_ITSELF = re.compile(
    r"""log\.(?!info|debug)\w+\(\s*"[^"]*(again with name|master is back|was a slave until|is the master of|copies the
    log"""
    r"""| left at|sync state set is|is online|made this broker|gave this broker|listening on loopback)"""
)
"""Joins, roles, promotions, reconnects and a first start."""


def test_warnings_are_few_and_joins_are_infos() -> None:
    warnings, wrong = [], []
    for path in sources("*.py", "*.pyx"):
        text = path.read_text("utf-8")
        for pattern, found in ((r"\blog\.warning\(", warnings), (BY_ITSELF, wrong)):
            for match in re.finditer(pattern, text):
                line = text.count("\n", 0, match.start()) + 1
                found.append(f"{path.relative_to(ROOT)}:{line}")
    assert len(warnings) <= WARNINGS_MAX, warnings
    assert not wrong


def test_infos_are_shown_by_default() -> None:
    assert broker_parser().parse_args([]).log_level == "info"
