"""Finding one's way: lists of verbs, guesses at what was meant, `help` and `version`."""

import pytest

from firearrow.client.cli.main import own_entries
from tests.support.command_line import here


@pytest.mark.parametrize("command", ["topic", "group", "dlq", "store", "context"])
def test_a_command_alone_lists_its_verbs(command: str) -> None:
    alone, asked = here(command), here(command, "--help")
    assert (alone.code, alone.out, alone.err) == (2, "", asked.out)
    assert "usage: firearrow " + command in alone.err
    assert " list " in alone.err or " verify " in alone.err


@pytest.mark.parametrize(
    ("words", "guess"),
    [
        (["tpoic"], "topic"),
        (["topics", "list"], "topic"),
        (["grp", "lag", "x"], "group"),
        (["Status"], "status"),
        (["stat"], "status"),
        (["vresion"], "version"),
        (["hlep"], "help"),
        (["topic", "lst"], "list"),
        (["topic", "creat", "T"], "create"),
        (["group", "lga", "G"], "lag"),
        (["store", "verfiy"], "verify"),
        (["topic", "list", "--jsno"], "--json"),
    ],
    ids=" ".join,
)
def test_a_mistyped_word_is_guessed(words: list[str], guess: str) -> None:
    answer = here(*words)
    assert answer.code == 2
    assert f"but there is {guess};" in answer.err, answer.err
    assert answer.err.count("\n") == 1


@pytest.mark.parametrize("word", ["xyzzy", "--xyzzy", ""])
def test_what_nothing_resembles_is_not_guessed(word: str) -> None:
    answer = here(word)
    assert answer.code == 2
    assert "but there is" not in answer.err


def test_help_and_version() -> None:
    assert here("help") == here("--help")
    assert here("help", "topic") == here("topic", "--help") == here("topic", "help")
    assert (
        here("help", "topic", "create")
        == here("topic", "create", "--help")
        == here("topic", "help", "create")
    )
    assert here("help", "send") == here("send", "--help")
    assert here("version") == here("--version")
    assert here("version").code == here("help").code == 0
    unknown = here("help", "tpoic")
    assert (unknown.code, "but there is topic" in unknown.err) == (2, True)
    for name in ("help", "version"):
        assert f"\n  {name}" in here("help").out
        assert name not in own_entries()
    assert here("completion", "words", "he").out == "help\n"
