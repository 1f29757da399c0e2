"""A short run of the fuzzer; `python -m tests.corruption` is the long one."""

import pytest

from tests.corruption.fuzzer import run


@pytest.mark.parametrize("seed", [1, 2])
def test_random_damage_is_survived(seed: int) -> None:
    results = run(25, seed)
    assert results["repaired"] > 8
    assert sum(results.values()) == 25
