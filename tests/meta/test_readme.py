"""README says the truth about options: its table is made from them (`python -m tests.meta.readme` writes it)."""

from pathlib import Path

from tests.meta.readme import README, options_table, section


def test_the_option_table_is_that_of_the_options() -> None:
    assert section(Path(README).read_text("utf-8"), "options") == options_table()
