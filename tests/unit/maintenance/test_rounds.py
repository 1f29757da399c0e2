"""A few seconds of the rounds that commands run for hours."""

from tests.maintenance.damage_rounds import rounds


def test_random_damage_is_found_and_repaired() -> None:
    ended = rounds(25, seed=8)
    assert ended.total() == 25
    assert ended["clean"] > 20
