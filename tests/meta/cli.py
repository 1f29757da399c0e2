"""docs/CLI.md: every command and verb of `client/cli`. `python -m tests.meta.cli` writes it, from the parsers."""

import argparse
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from unittest import mock

from firearrow.client.cli.command import Command
from firearrow.client.cli.main import own_entries

CLI = Path(__file__).resolve().parents[2] / "docs/CLI.md"
OWN_MODULES = "firearrow.client.cli."
TEXT = """# Command line

The lists below are generated from the source: `python -m tests.meta.cli`.

`firearrow COMMAND [VERB] …` works with topics, groups and messages of FireArrow's brokers and of Apache's 4.9 and 5.x.
What only FireArrow's brokers can answer exits with 2 on an Apache broker. `firearrow broker`, `namesrv`,
`store` and `spark` are described in [README.md](../README.md) and [SPARK.md](SPARK.md).

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

`firearrow completion bash`, `zsh` or `fish` prints what the shell needs to complete commands, topics and groups.

## Conventions

- **Where to**: `--namesrv ADDR;ADDR`, else the context of `--context`, else `NAMESRV_ADDR`, else the context chosen by
  `firearrow context use`, else `127.0.0.1:9876`. Contexts are kept in `~/.config/firearrow/contexts.json`, which only
  its owner can read: it may contain secret keys.
- **Output**: a table on a terminal; JSON Lines in a pipe or with `--json`, one object for each row. JSON has times in
  milliseconds since 1970, durations in milliseconds and sizes in bytes. Notes and errors go to stderr.
- **Changes**: a verb that moves or deletes asks first. `--yes` does not ask, `--dry-run` only says what it would do.
  Without a terminal and without `--yes` nothing is done, and the exit code is 2.
- **Times** are `now`, relative (`-15m`, `+1h30m`), ISO (`2026-01-31T12:00`, local unless it names its zone), or seconds
  or milliseconds since 1970.
- **Exit codes**: 0 ok; 1 found trouble, or a broker refused; 2 wrong use, or only FireArrow's brokers can do this; 3
  no broker can be reached; 130 ended by Ctrl-C.
"""
COMMON = {"--help", "--version", "--namesrv", "--context", "--timeout", "--json", "--dry-run", "--yes"}


@cache
def parsers() -> dict[str, argparse.ArgumentParser]:
    """The parser of each command, by name."""
    found: dict[str, argparse.ArgumentParser] = {}
    for name, entry in sorted(own_entries().items()):
        if not entry.module.startswith(OWN_MODULES):
            continue
        built: list[Command] = []

        def keep(command: Command, _: Sequence[str], built: list[Command] = built) -> int:
            built.append(command)
            return 0

        with mock.patch.object(Command, "run", keep):
            entry.load()([])
        found[name] = built[0].parser()
    return found


def verbs() -> list[argparse.ArgumentParser]:
    return [verb for parser in parsers().values() for verb in _verbs(parser)]


def _verbs(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """The parser itself if the command has no verbs."""
    groups = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if groups:
        yield from groups[0].choices.values()
    else:
        yield parser


def text() -> str:
    sections = [TEXT]
    for name, parser in parsers().items():
        sections.append(f"## firearrow {name}\n\n{_sentence(parser.description or '')}\n\n{_list(parser)}")
    return "\n".join(sections)


def _sentence(summary: str) -> str:
    return summary if summary.endswith(".") else summary + "."


def _list(parser: argparse.ArgumentParser) -> str:
    lines = []
    for verb in _verbs(parser):
        usage = " ".join([verb.prog, *_arguments(verb)])
        what = "" if verb is parser else f" {_capital(verb.description or '')}."
        example = (verb.epilog or "").removeprefix("example: ")
        lines.append(f"- `{usage}`:{what} `{example}`")
        lines += [f"  - `{names}`: {help_text}" for names, help_text in _options(verb)]
    return "\n".join(lines) + "\n"


def _capital(summary: str) -> str:
    return summary[:1].upper() + summary[1:]


def _arguments(verb: argparse.ArgumentParser) -> Iterator[str]:
    for action in verb._actions:
        if not action.option_strings:
            name = str(action.metavar or action.dest).upper() if action.choices is None else action.dest
            yield {"?": f"[{name}]", "*": f"[{name}…]", "+": f"{name}…"}.get(str(action.nargs), name)
    if any(names.startswith("-") for names, _ in _options(verb)):
        yield "[OPTIONS]"
    if any("--dry-run" in action.option_strings for action in verb._actions):
        yield "[--dry-run] [--yes]"


def _options(verb: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    for action in verb._actions:
        if COMMON & set(action.option_strings) or not action.help or action.help == argparse.SUPPRESS:
            continue
        names = ", ".join(action.option_strings) or str(action.metavar or action.dest).upper()
        value = "|".join(map(str, action.choices)) if action.choices is not None else action.metavar
        if action.option_strings and action.nargs != 0:
            names += f" {value or action.dest.upper()}"
        yield names, action.help % vars(action)


def main() -> None:
    CLI.write_text(text(), "utf-8")


if __name__ == "__main__":
    main()
