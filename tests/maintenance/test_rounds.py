"""The rounds that are run for hours by command, for a few seconds."""

from tests.maintenance.damage_rounds import rounds


def test_random_damage_is_found_and_mended() -> None:
    ended = rounds(25, seed=8)
    assert ended.total() == 25
    assert ended["clean"] > 20
