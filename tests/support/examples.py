"""How many drawn examples and seeds a run tries: all of them with `--long`, a part of them otherwise."""

from typing import Any

import pytest
from hypothesis import HealthCheck, settings

PART = 0.4
ALL = 100
"""Examples of a test that does not choose, with `--long`."""


def part_of(count: int) -> int:
    """At least one."""
    return max(1, round(PART * count))


for name, count in {"short": part_of(ALL), "long": ALL}.items():
    settings.register_profile(
        name, max_examples=count, deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )


def load_examples(*, long: bool) -> None:
    """Before the first file of tests is imported."""
    settings.load_profile("long" if long else "short")


def share(count: int) -> int:
    """`count` with `--long`. Not before `load_examples`."""
    return count if settings.get_current_profile_name() == "long" else part_of(count)


def examples(count: int, **others: Any) -> settings:  # noqa: ANN401
    """Of hypothesis, for a test that chooses how many: `count` with `--long`."""
    return settings(max_examples=share(count), **others)


def seeds(count: int) -> list[Any]:
    """Parameters of a test: `count` with `--long`."""
    short = part_of(count)
    return [*range(short), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(short, count))]
