"""README says the truth: its tables are made from options and results (`python -m tests.meta.readme` writes them)."""

from pathlib import Path

from tests.meta.readme import CLIENT, README, client_options_table, figures_table, options_table, section


def test_the_option_table_is_that_of_the_options() -> None:
    assert section(Path(README).read_text("utf-8"), "options") == options_table()


def test_the_figures_are_those_of_the_last_comparison() -> None:
    assert section(Path(README).read_text("utf-8"), "figures") == figures_table()


def test_the_client_option_table_is_that_of_the_options() -> None:
    assert section(CLIENT.read_text("utf-8"), "client options") == client_options_table(), (
        "run python -m tests.meta.readme"
    )
