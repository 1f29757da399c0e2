"""Round robin over the tasks of several queues, a step of each; all are closed."""

from collections.abc import Generator

import pytest

from firearrow.spark_tools.jobs.send_task import round_robin

Steps = Generator[None, None, None]


class Walk:
    """The steps that ran, in order."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def of(self, name: str, steps: int, *, fails: bool = False) -> Steps:
        try:
            for step in range(steps):
                self.events.append(f"{name}{step}")
                yield
            if fails:
                raise ValueError(name)
        finally:
            self.events.append(f"{name}.")


def test_a_step_of_each_and_the_next_when_one_is_over() -> None:
    walk = Walk()
    round_robin([walk.of("a", 1), walk.of("b", 3), walk.of("c", 2)], 2)
    assert walk.events == ["a0", "b0", "a.", "b1", "c0", "b2", "c1", "b.", "c."]


def test_one_at_a_time_keeps_the_order() -> None:
    walk = Walk()
    round_robin([walk.of("a", 2), walk.of("b", 1)], 1)
    assert walk.events == ["a0", "a1", "a.", "b0", "b."]


def test_one_that_fails_ends_all_that_go_and_no_other_begins() -> None:
    walk = Walk()
    with pytest.raises(ValueError, match="a"):
        round_robin([walk.of("a", 1, fails=True), walk.of("b", 3), walk.of("c", 2)], 2)
    assert walk.events == ["a0", "b0", "a.", "b."]


def test_nothing_to_do() -> None:
    round_robin([], 4)
