"""Arguments that commands of the client and jobs of Spark share: one name and one help for one thing.

docs/CLI.md has the table of them. A command may narrow or widen what it takes by a help of its own.
"""

from typing import Any, NamedTuple

from firearrow._native.base.verbs import Declared, argument


class SharedArgument(NamedTuple):
    """`names`: the first one is shown, all are accepted. `metavar`: None if it has no value."""

    names: tuple[str, ...]
    metavar: str | None
    help: str


ARGUMENTS = (
    SharedArgument(("--namesrv", "--name-server"), "ADDR;ADDR", "addresses of the name servers"),
    SharedArgument(
        ("--source-option",),
        "KEY=VALUE",
        "option of the client that reads, such as rocketmq.accessKey=…; can be repeated",
    ),
    SharedArgument(("--pattern",), "REGEX", "regular expression that whole names of topics match"),
    SharedArgument(("--topic", "--topics"), "TOPIC,TOPIC", "topics, separated by commas"),
    SharedArgument(
        ("--from",),
        "TIME",
        "stored at this time or later: -15m, an ISO time (local unless it names its zone), or ms since 1970",
    ),
    SharedArgument(("--to", "--until"), "TIME", "stored before this time"),
    SharedArgument(
        ("--tag", "--tags"), "TAG", "only messages with one of these tags: a, or 'a || b'; can be repeated"
    ),
    SharedArgument(("--key",), "KEY", "only messages with this key; can be repeated"),
    SharedArgument(
        ("--ids", "--unique-ids"),
        "ID,ID",
        "only messages with these ids, separated by commas, or @FILE with an id on each line; can be repeated",
    ),
    SharedArgument(("--grep",), "REGEX", "only bodies that match this regular expression"),
    SharedArgument(
        ("--sql",), "EXPR", 'only messages that this SQL92 expression selects, such as "price > 10"'
    ),
    SharedArgument(("--target",), "ADDR;ADDR", "addresses of the name servers of the target"),
    SharedArgument(("--to-topic",), "NAME", "NAME for all messages, or SOURCE=NAME; can be repeated"),
    SharedArgument(
        ("--create-topics",),
        None,
        "create topics that the target does not have, with the same number of queues",
    ),
    SharedArgument(("--rate",), "N", "maximum messages per second"),
    SharedArgument(("--bytes-rate",), "N", "maximum bytes per second"),
    SharedArgument(
        ("--provenance", "--no-provenance"),
        None,
        "add REPLAY_* properties: job, broker, topic, queue, offset",
    ),
    SharedArgument(
        ("--verify", "--no-verify"), None, "afterwards compare the target with the source, message by message"
    ),
    SharedArgument(("--quiet",), None, "show no progress on stderr"),
)
SHARED = {each.names[0]: each for each in ARGUMENTS}


def shared(name: str, **settings: Any) -> Declared:  # noqa: ANN401 (argparse's own types)
    """The declaration of a shared argument for a verb; `settings` are argparse's, and override the table's."""
    found = SHARED[name]
    value = {} if found.metavar is None else {"metavar": found.metavar}
    return found.names, {"help": found.help, **value, **settings}


def shared_argument(name: str, default: Any, **settings: Any) -> Any:  # noqa: ANN401 (as `dataclasses.field`)
    """A shared argument as a field of a dataclass, see `verbs.argument`."""
    names, merged = shared(name, **settings)
    further = {} if default is True else {"also": names[1:]}
    return argument(names[0], default, merged.pop("help"), **further, **merged)
