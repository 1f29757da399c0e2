"""docs/CLI.md: every command and verb of the command line. `python -m tests.meta.cli` writes it, from the parsers."""

import argparse
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from unittest import mock

from firearrow._native.base.verbs import Command, Verb
from firearrow.client.cli.main import own_entries
from firearrow.spark_tools.commands import JOBS
from tests.meta.questions import page

CLI = Path(__file__).resolve().parents[2] / "docs/CLI.md"
OWN_MODULES = "firearrow.client.cli."
SPARK_JOBS = "firearrow.spark_tools.jobs"
TEXT = """# Command line

The lists below are generated from the source: `python -m tests.meta.cli`. Of one command, an option that several verbs
have is at the first of them; `--help` lists all, with examples.

`firearrow COMMAND [VERB] …` works with topics, groups and messages of FireArrow's brokers and of Apache's 4.9 and 5.x.
What only FireArrow's brokers can answer exits with 2 on an Apache broker. `firearrow broker` and `namesrv` are
described in [README.md](../README.md), the jobs of `firearrow spark` in [SPARK.md](SPARK.md). [DOCTOR.md](DOCTOR.md)
lists all that `firearrow doctor` finds, with causes and fixes.

## Examples

README.md has the ten commands of a first day.

```sh
firearrow context add home --namesrv 127.0.0.1:9876   # where the commands go from now on
firearrow group lag billing --watch                   # what is left, by queue, every two seconds
firearrow group diff billing                          # do all members subscribe the same?
firearrow message find orders --from -15m --grep 'total.*[0-9]{5}'
firearrow dlq redrive billing --dry-run               # dead letters, back to their topics
firearrow topic trim orders --before -2d              # what is older is deleted at once
firearrow queue who billing                           # ordered queues: who holds them, what is at their head
firearrow top                                         # the busiest topics, the slowest groups
firearrow bench roundtrip --seconds 5                 # how fast is it from here?
```

`firearrow COMMAND` alone lists the verbs of a command, `firearrow help COMMAND VERB` has all arguments with examples.
`firearrow completion bash`, `zsh` or `fish` prints what the shell needs to complete commands, topics and groups.

## Conventions

- **Where to**: `--namesrv ADDR;ADDR`, else the context of `--context`, else `NAMESRV_ADDR`, else the context chosen by
  `firearrow context use`, else `127.0.0.1:9876`. Contexts are kept in `~/.config/firearrow/contexts.json`, which only
  its owner can read: it may contain secret keys.
- **Output**: a table on a terminal; JSON Lines in a pipe or with `--json`, one object for each row. JSON has times in
  milliseconds since 1970, durations in milliseconds and sizes in bytes. Notes and errors go to stderr. States and
  severities have colours on a terminal, unless NO_COLOR is set.
- **Changes**: a verb that moves or deletes asks first. `--yes` does not ask, `--dry-run` only prints what it would do.
  Without a terminal and without `--yes` nothing is done, and the exit code is 2.
- **Times** are `now`, relative (`-15m`, `+1h30m`), ISO (`2026-01-31T12:00`, local unless it names its zone), or seconds
  or milliseconds since 1970.
- **Exit codes**: 0 ok; 1 found trouble, or a broker refused; 2 wrong use, or only FireArrow's brokers can do this; 3
  no server can be reached; 130 ended by Ctrl-C.
"""
COMMON = {"--help", "--version", "--namesrv", "--context", "--timeout", "--json", "--dry-run", "--yes"}
CONNECTED = {"--json", "--dry-run", "--yes"}
"""Of COMMON, what a command without a connection has for itself."""


class Parsed(Exception):
    """Raised in place of parsing the arguments of `command`."""

    def __init__(self, command: Command) -> None:
        self.command = command


@cache
def commands() -> dict[str, Command]:
    """The command line: the commands of the client, and `store`."""
    found: dict[str, Command] = {}

    def keep(command: Command, *_: object, **__: object) -> argparse.Namespace:
        raise Parsed(command)

    for name, entry in sorted(own_entries().items()):
        if entry.module.startswith(OWN_MODULES) or name == "store":
            with mock.patch.object(Command, "parse", keep):
                try:
                    entry.load()([])
                except Parsed as parsed:
                    found[name] = parsed.command
    return found


@cache
def parsers() -> dict[str, argparse.ArgumentParser]:
    """The parser of each command, by name."""
    return {name: command.parser() for name, command in commands().items()}


@cache
def jobs() -> dict[str, Command]:
    """The jobs of `firearrow spark`, by name."""
    return {name: import_module(f"{SPARK_JOBS}.{job.module}").cli.command for name, job in JOBS.items()}


def verbs() -> list[Verb]:
    return [verb for command in commands().values() for verb in command.verbs()]


def text() -> str:
    sections = [TEXT, page()]
    for name, command in commands().items():
        summary = f"{parsers()[name].description}\n\n" if len(command.verbs()) > 1 else ""
        sections.append(f"## firearrow {name}\n\n{summary}{_list(command)}")
    return "\n".join(sections)


def _first_sentence(text: str) -> str:
    return text.split(". ", maxsplit=1)[0].removesuffix(".") + "."


def _list(command: Command) -> str:
    lines, listed = [], set[tuple[str, str]]()
    for verb in command.verbs():
        parser = verb.parser()
        usage = " ".join([verb.prog.removeprefix("firearrow "), *_arguments(parser)])
        lines.append(f"- `{usage}`: {_first_sentence(verb.help)}")
        options = [option for option in _options(parser) if option not in listed]
        lines += [f"  - `{names}`: {help_text}" for names, help_text in options]
        listed.update(options)
    return "\n".join(lines) + "\n"


def _is_common(parser: argparse.ArgumentParser, action: argparse.Action) -> bool:
    """Whether all verbs have it, or all that move or delete something."""
    names = set(action.option_strings)
    return bool(names & COMMON) and ("--namesrv" in parser._option_string_actions or not names & CONNECTED)


def _arguments(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:
        if not action.option_strings:
            name = str(action.metavar or action.dest).upper()
            yield {"?": f"[{name}]", "*": f"[{name}…]", "+": f"{name}…"}.get(str(action.nargs), name)
    if any("--dry-run" in action.option_strings and _is_common(parser, action) for action in parser._actions):
        yield "[--dry-run]"


def _options(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    for action in parser._actions:
        if _is_common(parser, action) or not action.help or action.help == argparse.SUPPRESS:
            continue
        names = ", ".join(action.option_strings) or str(action.metavar or action.dest).upper()
        value = "|".join(map(str, action.choices)) if action.choices is not None else action.metavar
        if action.option_strings and action.nargs != 0:
            names += f" {value or action.dest.upper()}"
        yield names, " ".join((action.help % vars(action)).split())


def main() -> None:
    CLI.write_text(text(), "utf-8")


if __name__ == "__main__":
    main()
