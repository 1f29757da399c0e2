"""Checker: checks a History by all rules. Pure; the same history gives the same result.

Rules: an acknowledged message is lost, gone, repeated, disordered, changed or invented; a delivered one is gone,
invented, skipped, undelivered or delivered again; offsets go backwards, ahead, or are forgotten.
"""

from collections import Counter
from collections.abc import Callable, Iterator

from tests.history import delivery_rules, offset_rules, sending_rules
from tests.history.history import History
from tests.history.violation import Violation

Rule = Callable[[History, bool], Iterator[Violation]]
RULES: tuple[Rule, ...] = (
    sending_rules.lost,
    sending_rules.repeated,
    sending_rules.invented,
    sending_rules.gone,
    sending_rules.disordered,
    delivery_rules.false_deliveries,
    delivery_rules.undelivered,
    delivery_rules.skipped,
    delivery_rules.again,
    offset_rules.backwards,
    offset_rules.forgotten,
    offset_rules.ahead,
)


def check(history: History, settled: bool = True) -> list[Violation]:
    """All violations. `settled=False`: clients are at work, so what may still come is not missing."""
    return [violation for rule in RULES for violation in rule(history, settled)]


def allowed(history: History) -> dict[str, int]:
    """What the protocol allows and occurred: repeats of what was not acknowledged or not committed, by kind."""
    stored = Counter(copy.name for copy in history.stored.values())
    got = Counter((d.group, d.position) for d in history.deliveries if d.times == 0)
    unanswered = [a for a in history.attempts.values() if not a.acknowledged and a.name in stored]
    return {
        "stored though unanswered": len(unanswered),
        "stored again by the client": sum(count - 1 for count in stored.values()),
        "delivered again": sum(count - 1 for count in got.values()),
    }
