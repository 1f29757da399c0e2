"""Violation: one way in which a history cannot be that of a broker that keeps its promises."""

from typing import NamedTuple


class Violation(NamedTuple):
    """`rule` names the promise that is broken, `text` says where."""

    rule: str
    text: str
