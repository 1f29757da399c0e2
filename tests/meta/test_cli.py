"""docs/CLI.md is up to date; each command of the first day is one that the parsers accept."""

import re
import shlex
from argparse import ArgumentParser

import pytest

from firearrow.client.cli.main import own_entries
from tests.meta.cli import CLI, OWN_MODULES, TEXT, parsers, text, verbs


def test_cli_md_is_generated() -> None:
    assert CLI.read_text("utf-8") == text(), "run `python -m tests.meta.cli`"


def test_each_command_of_ours_has_a_parser() -> None:
    ours = {name for name, entry in own_entries().items() if entry.module.startswith(OWN_MODULES)}
    assert ours == set(parsers())
    assert {"topic", "group", "status", "top", "clients", "config", "bench", "context", "completion"} <= ours


@pytest.mark.parametrize("line", re.findall(r"^firearrow [^#\n]+", TEXT, re.M))
def test_the_first_day(line: str) -> None:
    _, name, *arguments = shlex.split(line)
    parsers()[name].parse_args(arguments)


@pytest.mark.parametrize("verb", verbs(), ids=lambda verb: verb.prog)
def test_examples_are_accepted(verb: ArgumentParser) -> None:
    """Each verb's own example, without what it redirects."""
    command = re.split(" [<>] ", (verb.epilog or "").removeprefix("example: "))[0]
    _, name, *arguments = shlex.split(command)
    parsers()[name].parse_args(arguments)
