"""Violation: one way in which a history contradicts the broker's promises."""

from typing import NamedTuple


class Violation(NamedTuple):
    """`rule` names the broken promise, `text` says where."""

    rule: str
    text: str
