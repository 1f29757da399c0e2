"""docs/CLI.md: every command and verb of the command line. `python -m tests.meta.cli` writes it, from the parsers."""

import argparse
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from unittest import mock

from firearrow._native.base import shared_arguments
from firearrow._native.base.verbs import Command, Verb
from firearrow.client.cli.main import own_entries
from firearrow.spark_tools.commands import JOBS
from tests.meta.questions import page

CLI = Path(__file__).resolve().parents[2] / "docs/CLI.md"
OWN_MODULES = ("firearrow.client.cli.", "firearrow.client.console.")
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
firearrow dlq redrive billing --grep 'timeout' --rate 50   # some of them, slowly
firearrow topic export orders orders.jsonl --from -1d # a day of messages, in a file
firearrow topic copy home:orders test: --create-topics   # between clusters that have contexts
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
- **Long work** (`topic export`, `import`, `copy`, `dlq redrive`) continues when the same command is given again after a
  kill. Its progress is in `~/.local/state/firearrow`, that of an export beside its file. A bar on stderr shows it, on a
  terminal only.
- **Exit codes**: 0 ok; 1 found trouble, or a broker refused; 2 wrong use, or only FireArrow's brokers can do this; 3
  no server can be reached; 130 ended by Ctrl-C.
"""
SHARED = """## Options of commands and Spark jobs

These words mean the same in `firearrow topic export`, `import`, `copy` and `firearrow dlq` as in the jobs of
`firearrow spark` (`export`, `import`, `copy`, `replay`, `redrive`). The second name is accepted as well. Times are
local unless they name their zone; jobs take no relative ones, because they may be resumed later. `firearrow spark
export` has `--to FOLDER`, and for the time only `--until`.

"""
DEAD_LETTERS = """## Dead letters

A dead letter stays in its topic, `%DLQ%GROUP`, until it expires, as with Apache's tools and dashboard, which resend
and export dead letters and delete none. `firearrow dlq` adds to that:

- **Choice**: `--from`, `--to`, `--key`, `--tag`, `--grep`, `--ids` and `--limit`, in `show`, `export`, `redrive` and
  `drop`.
- **Edits** before a letter is sent again: `--property`, `--remove-property`, `--filter 'jq …'`, `--body`, or an
  editor (`--edit`). The unique id stays.
- **Receipts**: what became of each letter, in a file of this machine (`dlq receipts`). A letter is noted before it is
  sent, and after it. A redrive that was interrupted leaves at most 32 letters of which it is not known; the next one
  looks them up in their topics by their REPLAY_* properties and the key index. If that cannot show it
  (`--no-provenance`, no index), they are sent again, counted (`maybeTwice`) and named. Nothing is tried a second time
  by itself.
- **Progress**: the offset of TOOLS_CONSUMER in the topic, at the broker, before which all letters are done. `dlq
  list` and other machines see it. It stops before the first letter that is not done, so `list` can count letters that
  were sent by choice. Receipts of another machine are not seen: give `--receipts` a file that both have.
- **Drop**: a log loses messages at its start only. Without a choice, `drop` deletes all letters, those before a time,
  or those sent again (FireArrow only). Chosen letters are marked in the receipts, and `redrive` passes over them;
  they are deleted once all letters before them were dropped as well. Apache's brokers delete none: there `drop
  --mark` and a choice only let `redrive` and `list` pass over them.
"""
TRANSFER = """## Topics in files and other clusters

- `topic export T FILE` writes a line of JSON for each message, with all that the broker has of it, in the order of
  store times; bodies that are not UTF-8 are in base64. `FILE.parquet` has the columns of Spark's `export`, for
  pyarrow and Spark. While it runs there are FILE.part and FILE.progress; FILE is there when it is complete and was
  read again, and FILE.manifest has its counts and CRCs.
- `topic import T FILE` takes such files, a Parquet file of `firearrow spark export`, the output of `tail` and `dlq
  export`, and lines made by hand: only `body` is needed. Lines that are no messages are counted and named, and the
  others are sent.
- `topic copy A B`: each is TOPIC or CONTEXT:TOPIC. What is stored at the first start is copied; the same command
  later copies what came since.
- Each queue keeps its order: it goes to the queue with its number, at the broker with its name if there is one.
  Properties that brokers set, or that would act again, are left out, as in the jobs of Spark.
- **Twice**: a run that was killed may have sent messages without learning it. The next one reads the end of the
  target first and does not send these again (`foundSent`). A request that arrives later still can store them twice:
  at the end the target is read, and `missingAtTarget`, `duplicates` and differing CRCs are reported (`--no-verify`:
  not). With `--no-provenance` neither can be seen, and the report has how many may be there twice.
- **Missing**: messages that were deleted before they could be read, and bodies that do not match the CRC of their
  record, are counted, and the exit code is 1.
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
    """The command line: the commands of the client, `export`, `sql` and `store`."""
    found: dict[str, Command] = {}

    def keep(command: Command, *_: object, **__: object) -> argparse.Namespace:
        raise Parsed(command)

    for name, entry in sorted(own_entries().items()):
        if entry.module.startswith(OWN_MODULES) or name in ("export", "sql", "store"):
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


def having(name: str) -> tuple[set[str], set[str]]:
    """The commands, by their verbs, and the jobs that have an option."""
    found = {
        verb.prog.removeprefix("firearrow ")
        for verb in verbs()
        if name in verb.parser()._option_string_actions
    }
    names = {job for job, command in jobs().items() if name in command.parser()._option_string_actions}
    return found, names


def shared_table() -> str:
    """The arguments of `_native.base.shared_arguments`."""
    lines = []
    for each in shared_arguments.ARGUMENTS:
        in_commands, in_jobs = having(each.names[0])
        whose = "" if in_commands and in_jobs else " (commands)" if in_commands else " (jobs)"
        value = f" {each.metavar}" if each.metavar else ""
        further = "".join(f", `{name}`" for name in each.names[1:])
        lines.append(f"- `{each.names[0]}{value}`{further}{whose}: {each.help}")
    return SHARED + "\n".join(lines) + "\n"


def text() -> str:
    sections = [TEXT, page(), shared_table(), DEAD_LETTERS, TRANSFER]
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
