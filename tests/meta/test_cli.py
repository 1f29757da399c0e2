"""docs/CLI.md is up to date; help has the same form everywhere; each example is one that the parsers accept."""

import re
import shlex

import pytest

from firearrow._native.base.command_line import Parser
from firearrow._native.base.shared_arguments import ARGUMENTS
from firearrow._native.base.verbs import Verb
from firearrow.broker.base.arguments import broker_parser, namesrv_parser
from firearrow.client.cli.main import own_entries
from tests.meta.cli import CLI, OWN_MODULES, TEXT, having, jobs, parsers, text, verbs

OF_JOBS = [verb for job in jobs().values() for verb in job.verbs()]
PLAIN = re.compile(
    r"\b(behind|anew|nobody|somebody|tells?|told|whoever|hears?|says?|said|gone|of ours|begins again)\b|, too\b"
)
"""What help does not have: words that do not name what a program does."""


def test_cli_md_is_generated() -> None:
    assert CLI.read_text("utf-8") == text(), "run `python -m tests.meta.cli`"


def test_each_command_of_ours_has_a_parser() -> None:
    ours = {name for name, entry in own_entries().items() if entry.module.startswith(OWN_MODULES)}
    assert ours | {"export", "sql", "store"} == set(parsers())
    assert {"topic", "group", "status", "top", "clients", "config", "bench", "context", "completion"} <= ours


@pytest.mark.parametrize("line", re.findall(r"^firearrow [^#\n]+", TEXT, re.M))
def test_the_first_day(line: str) -> None:
    _, name, *arguments = shlex.split(line)
    parsers()[name].parse_args(arguments)


@pytest.mark.parametrize("verb", [*verbs(), *OF_JOBS], ids=lambda verb: verb.prog)
def test_help_is_two_sentences_and_two_examples(verb: Verb) -> None:
    sentences = re.split(r"(?<=\.)\s", verb.help)
    assert len(sentences) == 2, verb.help
    assert all(re.match(r"[A-Z]", sentence) for sentence in sentences), verb.help
    assert len(set(verb.examples)) == 2
    helps = [verb.help, *(action.help or "" for action in verb.parser()._actions)]
    assert not [help_text for help_text in helps if PLAIN.search(help_text)]


@pytest.mark.parametrize("verb", [*verbs(), *OF_JOBS], ids=lambda verb: verb.prog)
def test_each_argument_has_help(verb: Verb) -> None:
    assert not [action.dest for action in verb.parser()._actions if not action.help]


@pytest.mark.parametrize("verb", [*verbs(), *OF_JOBS], ids=lambda verb: verb.prog)
def test_examples_are_accepted(verb: Verb) -> None:
    """Without what they redirect. Those of `promote` are the ones of `replica promote`."""
    for example in verb.examples:
        _, name, *arguments = shlex.split(re.split(" [<>] ", example)[0])
        if name == "spark":
            jobs()[arguments[0]].parser().parse_args(arguments[1:])
        else:
            parsers()[name].parse_args(arguments)


OWN_HELP = {"--from", "--namesrv", "--rate", "--bytes-rate"}
"""Commands take more than a time as a place to start; jobs name what is theirs."""
OTHER_MEANING = {
    ("firearrow spark export", "--to"),
    ("firearrow group seek", "--to"),
    ("firearrow spark import", "--provenance"),
    ("firearrow spark import", "--no-provenance"),
}
MOVERS = re.compile(r"firearrow (topic (export|import|copy)|dlq|spark (export|import|copy|replay|redrive))\b")


@pytest.mark.parametrize(
    "verb", [v for v in [*verbs(), *OF_JOBS] if MOVERS.match(v.prog)], ids=lambda verb: verb.prog
)
def test_one_word_for_one_thing_in_commands_and_jobs(verb: Verb) -> None:
    """The names and helps of shared options are those of the table, wherever they are."""
    actions = verb.parser()._option_string_actions
    for each in ARGUMENTS:
        present = [name for name in each.names if name in actions and (verb.prog, name) not in OTHER_MEANING]
        if not present or (each.names[0] == "--verify" and verb.prog.startswith("firearrow spark")):
            continue
        assert present[0] == each.names[0] or (verb.prog, each.names[0]) in OTHER_MEANING
        if each.names[0] not in OWN_HELP:
            assert {actions[name].help for name in present} == {each.help}


@pytest.mark.parametrize("option", ["--from", "--to", "--key", "--tag", "--ids", "--rate"])
def test_all_movers_have_the_choices(option: str) -> None:
    in_commands, in_jobs = having(option)
    assert {"dlq redrive", "dlq export", "dlq drop", "topic export", "topic copy"} <= in_commands
    assert {"replay", "redrive", "copy"} <= in_jobs


@pytest.mark.parametrize("parser", [broker_parser(), namesrv_parser()], ids=lambda parser: parser.prog)
def test_servers_have_examples(parser: Parser) -> None:
    title, *examples = (parser.epilog or "").splitlines()
    assert (title, len(examples)) == ("examples:", 2)
    for example in examples:
        words = shlex.split(example)
        assert words[:2] == parser.prog.split()
        parser.parse_args(words[2:])


@pytest.mark.parametrize("command", sorted(parsers()))
def test_a_wrong_word_is_one_sentence_that_says_what_to_do(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        parsers()[command].parse_args(["--versoin"])
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert error.startswith(f"firearrow {command}")
    assert f"firearrow {command} --help shows the arguments" in error
