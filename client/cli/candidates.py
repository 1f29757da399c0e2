"""Candidates: what the last word of a command line may be, for the shells' completion.

Names of topics and groups are asked of the brokers, for a second at most; whatever fails, there are no candidates.
"""

import argparse
import asyncio
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import pairwise

from firearrow.client.admin_api.admin import Admin
from firearrow.client.base.errors import RocketMQError
from firearrow.client.cli.contexts import chosen_context, load_contexts
from firearrow.client.cli.formats import is_of_user, is_system_group

WAIT_S = 1.0
SAFE = re.compile(r"[\w%.:@=,/+-]+", re.ASCII)
"""Names come from outside, and a shell would run what it finds in others."""
TOPICS = ("topic", "topics", "source", "goal")
"""Arguments that are names of topics."""
OPTIONS_OF_CONNECTION = {"-n": "namesrv", "--namesrv": "namesrv", "--context": "context"}


def print_candidates(parser: argparse.ArgumentParser, words: Sequence[str]) -> int:
    """A line for each candidate for the last of the words; the exit code."""
    *before, last = words or [""]
    with suppress(RocketMQError, OSError, TimeoutError):
        print_fitting(_candidates(parser, before, last), last)
    return 0


def print_fitting(candidates: Iterable[str], last: str) -> None:
    for candidate in sorted(set(candidates)):
        if candidate.startswith(last) and SAFE.fullmatch(candidate):
            print(candidate)


def _candidates(parser: argparse.ArgumentParser, before: Sequence[str], last: str) -> Iterable[str]:
    waiting: argparse.Action | None = None  # the option whose value comes next
    position = 0
    for word in before:
        option = next((action for action in parser._actions if word in action.option_strings), None)
        if option is not None:
            waiting = option if option.nargs != 0 else None
        elif waiting is not None:
            waiting = None
        else:
            found = _positional(parser, position)
            if isinstance(found, argparse._SubParsersAction):
                if word not in found.choices:
                    return ()
                parser, position = found.choices[word], 0
            else:
                position += 1
    if last.startswith("-"):
        shown = (action for action in parser._actions if action.help != argparse.SUPPRESS)
        return [name for action in shown for name in action.option_strings if name.startswith("--")]
    action = waiting or _positional(parser, position)
    return () if action is None else _values(parser, action, before)


def _positional(parser: argparse.ArgumentParser, position: int) -> argparse.Action | None:
    """The argument at this position; the last one stands for all that follow if it takes many words."""
    actions = [action for action in parser._actions if not action.option_strings]
    if position < len(actions):
        return actions[position]
    return actions[-1] if actions and actions[-1].nargs in ("*", "+") else None


def _values(parser: argparse.ArgumentParser, action: argparse.Action, before: Sequence[str]) -> Iterable[str]:
    if action.choices is not None:
        return list(action.choices)
    kind = action.dest
    if kind == "context" or (kind == "name" and parser.prog.startswith("firearrow context")):
        return load_contexts().by_name
    if kind not in (*TOPICS, "group", "broker", "cluster"):
        return ()
    return asyncio.run(_asked(kind, before))


async def _asked(kind: str, before: Sequence[str]) -> Iterable[str]:
    given = dict.fromkeys(OPTIONS_OF_CONNECTION.values())
    for option, value in pairwise(before):
        if option in OPTIONS_OF_CONNECTION:
            given[OPTIONS_OF_CONNECTION[option]] = value
    context = chosen_context(given["context"], given["namesrv"])
    async with asyncio.timeout(WAIT_S), Admin(client=context.client_options(), timeout_s=WAIT_S) as admin:
        if kind == "group":
            return [name for name in await admin.groups() if not is_system_group(name)]
        if kind in TOPICS:
            names, system = await asyncio.gather(admin.topics(), admin.system_topics())
            return [name for name in names if is_of_user(name, system)]
        info = await admin.cluster_info()
        return info.brokers if kind == "broker" else info.clusters
