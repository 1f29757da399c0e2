"""Commands and their verbs: each argument is declared once. The commands of the client, the store and Spark share it.

    command = Command("topic", __doc__)
    command.verb("show", show).argument("topic")
    given = command.parse(arguments)

The docstring of `show` is the help: two sentences, of which lists show the first one, and a line for each example.
`given` has a member for each argument, and `verb`: the Verb. Arguments that functions share are the fields of a
dataclass; `Verb.group` declares them, and `call` passes an object of it to the verb's function:

    @dataclass(frozen=True, kw_only=True)
    class ReportArguments:
        json: bool = argument("--json", False, "print one JSON object")
"""

import argparse
import inspect
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, field, fields
from types import MappingProxyType
from typing import Any, Self

from firearrow._native.base.command_line import HELP, WRONG_USAGE, Parser

Declared = tuple[tuple[str, ...], dict[str, Any]]
"""Names and settings of `argparse.ArgumentParser.add_argument`."""
DECLARED = "declared"
REQUIRED = MISSING
SENTENCE_END = re.compile(r"(?<=\.)\s")


def argument(name: str, default: Any, help: str, **settings: Any) -> Any:  # noqa: ANN401 (as `dataclasses.field`)
    """A field that is an argument. A default of False makes an option without a value, one of True a pair such as
    `--crc` and `--no-crc`, whose second name may be another one (`off`); REQUIRED: a word. `also`: further names;
    the others of `settings` are argparse's."""
    names: tuple[str, ...] = (name, *settings.pop("also", ()))
    settings["help"] = help or None
    if default is True:
        names = (name, settings.pop("off", f"--no-{name.removeprefix('--')}"))
        settings["action"] = Switch
    elif default is False:
        settings["action"] = "store_true"
    return field(default=default, metadata={DECLARED: (names, settings)})


def groups_of(given: argparse.Namespace) -> list[Any]:
    """An object for each of the verb's groups."""
    return [
        kind(**{each.name: getattr(given, each.name) for each in fields(kind)}) for kind in given.verb.groups
    ]


def call(given: argparse.Namespace) -> Any:  # noqa: ANN401 (whatever the verb's function returns)
    """Call the verb's function with its groups."""
    return given.verb.action(*groups_of(given))


def _declared(kind: type) -> Sequence[Declared]:
    found = []
    for each in fields(kind):
        names, settings = each.metadata[DECLARED]
        if names[0].startswith("-"):
            settings = settings | {"dest": each.name, "default": each.default}
            if "action" not in settings or settings["action"] == "append":
                settings.setdefault("metavar", names[0].lstrip("-").upper())
        found.append((names, settings))
    return found


def integer(least: int, most: int) -> Callable[[str], int]:
    """The type of an integer argument with these bounds."""

    def parsed(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if not least <= number <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is not an integer from {least} to {most}")
        return number

    return parsed


def agrees(question: str) -> bool:
    """Ask at the terminal; the answer may be `y` or `yes`."""
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


class Verb:
    """The arguments of one verb; methods return the verb, so that they can be chained.

    Its parser is made when it is needed: those of all verbs of a command take longer than a verb runs.
    """

    def __init__(
        self, prog: str, action: Callable[..., Any], common: Sequence[Declared], helps: Mapping[str, str]
    ) -> None:
        self.prog = prog
        self.action = action
        text, _, examples = inspect.cleandoc(action.__doc__ or "").partition("\n\n")
        self.help = " ".join(text.split())
        self.summary = SENTENCE_END.split(self.help, 1)[0]
        self.examples = [line.strip() for line in examples.splitlines()]
        self._common = common
        self._helps = helps
        self._arguments: list[Declared] = []
        self.groups: list[type] = []

    def argument(self, *names: str, **settings: Any) -> Self:  # noqa: ANN401 (argparse's own types)
        """As `argparse.ArgumentParser.add_argument`."""
        self._arguments.append((names, settings))
        return self

    def arguments(self, *declared: Declared) -> Self:
        """Arguments that are declared already, such as shared ones."""
        self._arguments += declared
        return self

    def group(self, kind: type) -> Self:
        """The arguments that are fields of this dataclass, see `argument`."""
        self.groups.append(kind)
        self._arguments += _declared(kind)
        return self

    def moving(self) -> Self:
        """The verb moves or deletes something: `--dry-run` and `--yes`."""
        self.argument("--dry-run", action="store_true", help="only print what would be done")
        return self.argument("-y", "--yes", action="store_true", help="do not ask for confirmation")

    def parser(self) -> Parser:
        parser = Parser(self.prog, self.help, self.examples)
        self._fill(parser)
        return parser

    def add_to(self, verbs: "argparse._SubParsersAction[_VerbParser]", name: str) -> None:
        summary = self.summary.replace("%", "%%")
        parser = verbs.add_parser(name, help=summary, description=self.help, examples=self.examples)
        self._fill(parser)

    def _fill(self, parser: Parser) -> None:
        parser.set_defaults(verb=self)
        common = parser.add_argument_group("connection and output")
        for names, settings in self._common:
            common.add_argument(*names, **settings)
        for names, settings in self._arguments:
            is_word = not names[0].startswith("-") and "choices" not in settings
            more: dict[str, Any] = {"metavar": names[0].upper()} if is_word else {}
            if not names[0].startswith("-"):
                more["help"] = self._helps.get(names[0])
            parser.add_argument(*names, **(more | settings))


class Command:
    """`name`: the command's words after `firearrow`. `docstring`: the help of a command with verbs, in its first line.
    `common`: arguments of all verbs. `helps`: of words for which a verb has none, by name."""

    def __init__(
        self,
        name: str,
        docstring: str | None,
        common: Sequence[Declared] = (),
        helps: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._prog = f"firearrow {name}"
        self._summary = (docstring or "").partition("\n")[0]
        self._common = common
        self._helps = helps
        self._verbs: dict[str, Verb] = {}
        self._only: Verb | None = None

    def verb(self, name: str, action: Callable[..., Any]) -> Verb:
        """A verb of its own: `firearrow topic list`."""
        verb = self._verbs[name] = Verb(f"{self._prog} {name}", action, self._common, self._helps)
        return verb

    def only(self, action: Callable[..., Any]) -> Verb:
        """The command is a verb itself: `firearrow send`."""
        self._only = Verb(self._prog, action, self._common, self._helps)
        return self._only

    def verbs(self) -> list[Verb]:
        return list(self._verbs.values()) if self._only is None else [self._only]

    def parser(self) -> Parser:
        """With all verbs."""
        if self._only is not None:
            return self._only.parser()
        parser = Parser(self._prog, self._summary)
        verbs = parser.add_subparsers(metavar="VERB", required=True, parser_class=_VerbParser)
        for name, verb in self._verbs.items():
            verb.add_to(verbs, name)
        return parser

    def parse(self, arguments: Sequence[str], *, any_value: bool = False) -> argparse.Namespace:
        """The arguments, and the Verb as `verb`. SystemExit: help, version or wrong use; without arguments, a list of
        the verbs.

        `any_value`: the value of an option may start with `-`, as for getopt.
        """
        if self._only is None and not arguments:
            print(self.parser().format_help(), end="", file=sys.stderr)
            raise SystemExit(WRONG_USAGE)
        if self._only is None and arguments[0] == HELP:
            arguments = [*arguments[1:2], "--help"]
        verb = self._only or self._verbs.get(arguments[0])
        if verb is None:
            return self.parser().parse_args(arguments, argparse.Namespace())
        words = arguments if verb is self._only else arguments[1:]
        parser = verb.parser()
        return parser.parse_args(_with_values(parser, words) if any_value else words, argparse.Namespace())


class Switch(argparse.Action):
    """An option with two names: the first one sets True, the second one False."""

    def __init__(self, option_strings: Sequence[str], dest: str, **settings: Any) -> None:  # noqa: ANN401
        super().__init__(option_strings, dest, nargs=0, **settings)

    def __call__(
        self, parser: object, given: argparse.Namespace, values: object, option: str | None = None
    ) -> None:
        setattr(given, self.dest, option == self.option_strings[0])

    def format_usage(self) -> str:
        return " | ".join(self.option_strings)


class _VerbParser(Parser):
    """A verb's parser: argparse passes other arguments than `Parser` has."""

    def __init__(self, *, prog: str, description: str, examples: Sequence[str]) -> None:
        super().__init__(prog, description, examples)


def _with_values(parser: argparse.ArgumentParser, words: Sequence[str]) -> list[str]:
    """`--key=-x` for `--key -x`, which argparse takes for two options."""
    valued = {name for each in parser._actions if each.nargs is None for name in each.option_strings}
    joined: list[str] = []
    left = iter(words)
    for word in left:
        value = next(left, None) if word in valued else None
        joined.append(word if value is None else f"{word}={value}")
        if word == "--":
            joined += left
    return joined
