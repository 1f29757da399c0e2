"""Commands, verbs and their arguments: help from docstrings, fields as arguments, errors of one sentence."""

import argparse
import io
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from firearrow._native.base.verbs import REQUIRED, Command, agrees, argument, call, groups_of, integer


@dataclass(frozen=True, kw_only=True)
class Paged:
    limit: int = argument("--limit", 10, "maximum number", type=integer(1, 99), metavar="N")
    color: bool = argument("--color", True, "use colors")
    raw: bool = argument("--as-is", False, "")


@dataclass(frozen=True, kw_only=True)
class Named:
    name: str = argument("name", REQUIRED, "100 %% of the name")
    groups: list[str] | None = argument("--group", None, "", action="append")
    order: str = argument("--order", "up", "", choices=("up", "down"))


def show(paged: Paged, named: Named) -> tuple[Paged, Named]:
    """Show 100 % of a thing. It
    has a name.

        firearrow thing show one --limit 5
        firearrow thing show a-name-that-is-long-enough-for-the-line-to-be-wider-than-a-terminal --limit 5
    """
    return paged, named


def drop() -> None:
    """Drop it. It is deleted.

    firearrow thing drop
    """


def thing() -> Command:
    command = Command("thing", "Manage things.\n\nThis is not help.")
    command.verb("show", show).group(Paged).group(Named)
    command.verb("drop", drop).moving()
    return command


def test_a_verb_gets_its_groups() -> None:
    given = thing().parse(["show", "one", "--limit", "5", "--no-color", "--group", "a", "--group", "b"])
    assert call(given) == (Paged(limit=5, color=False), Named(name="one", groups=["a", "b"]))
    assert groups_of(thing().parse(["show", "one"])) == [Paged(), Named(name="one")]


def test_the_help_is_the_docstring(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "70")
    with pytest.raises(SystemExit, match="0"):
        thing().parse(["show", "--help"])
    shown = capsys.readouterr().out
    assert "\nShow 100 % of a thing. It has a name.\n" in shown
    assert "[--color | --no-color]" in " ".join(shown.split())
    title, *examples = shown.splitlines()[-3:]
    assert title == "examples:"
    assert [line.strip() for line in examples] == thing().verbs()[0].examples


def test_lists_have_the_first_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        thing().parse(["--help"])
    shown = capsys.readouterr().out
    assert "\nManage things.\n" in shown
    assert "show      Show 100 % of a thing.\n" in shown
    assert "has a name" not in shown


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["shwo"], "argument VERB: 'shwo' is not one of show, drop, but there is show"),
        (["show"], "the following arguments are required: NAME"),
        (["show", "one", "two"], "'two' is one argument too many"),
        (["show", "one", "--limits=5"], "there is no option --limits, but there is --limit"),
        (["show", "one", "--xyz"], "there is no option --xyz"),
        (["show", "one", "--limit", "100"], "argument --limit: '100' is not an integer from 1 to 99"),
        (["show", "one", "--limit", "many"], "argument --limit: 'many' is not an integer from 1 to 99"),
        (["show", "one", "--order", "left"], "argument --order: 'left' is not one of up, down"),
        (["show", "one", "--as-is=1"], "argument --as-is: ignored explicit argument '1'"),
    ],
)
def test_wrong_usage_is_one_sentence(
    words: Sequence[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        thing().parse(words)
    prog = "firearrow thing show" if words[:1] == ["show"] else "firearrow thing"
    assert capsys.readouterr().err == f"{prog}: {sentence}; {prog} --help shows the arguments\n"


def test_a_value_may_start_with_a_dash_where_a_command_allows_it() -> None:
    words = ["show", "one", "--group", "--as-is", "--group=-x", "--", "-y"]
    assert thing().parse([*words[:5], "--as-is"], any_value=True).groups == ["--as-is", "-x"]
    given = thing().parse(["show", "--group", "-a", "--", "-y"], any_value=True)
    assert (given.groups, given.name) == (["-a"], "-y")
    given = thing().parse(["show", "--group=--", "--", "--"])
    assert (given.groups, given.name) == (["--"], "--")  # argparse would give an empty list
    with pytest.raises(SystemExit, match="2"):
        thing().parse(words)


@pytest.mark.parametrize(("typed", "agreed"), [("y\n", True), (" YES \n", True), ("n\n", False), ("", False)])
def test_a_question_is_agreed_to_with_y_or_yes(
    typed: str, agreed: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(typed))
    assert agrees("delete it?") is agreed
    assert capsys.readouterr().err == "delete it? [y/N] "


def test_a_number_without_bounds_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    command = Command("one", None)
    command.only(drop).argument("--size", type=int).argument("--rate", type=float)
    for words, text in (
        (["--size", "x"], "--size: 'x' is not an integer"),
        (["--rate", "x"], "--rate: 'x' is not a number"),
    ):
        with pytest.raises(SystemExit, match="2"):
            command.parse(words)
        assert text in capsys.readouterr().err
    assert isinstance(command.parse([]), argparse.Namespace)
