"""Everyday questions of operators, and the commands that answer them: a page of docs/CLI.md.

tests/interop/test_questions.py runs each command against a cluster in disorder.
"""

from typing import NamedTuple


class Question(NamedTuple):
    """`when`: the end of "What do I type when …". `ID` in `command` stands for the id of a message. `answer`: what the
    reader sees. `shows`: a text that the output has in the test; `code`: the exit code there. `ours`: only FireArrow's
    brokers can answer."""

    when: str
    command: str
    answer: str
    shows: str
    code: int = 0
    ours: bool = False


QUESTIONS = (
    Question(
        "I come to work and want to know whether all is well?",
        "firearrow status",
        "each broker with its rates, disk, oldest unread message and trouble; exit code 1 if there is any",
        '"trouble":[]',
    ),
    Question(
        "something is wrong, and I do not know what?",
        "firearrow doctor",
        "each problem with its cause and its fix; exit code 1 if there are any",
        '"subject":"group shipping"',
        code=1,
    ),
    Question(
        "I look for the busiest topics and the slowest groups?",
        "firearrow top --once",
        "topics by rate, groups by lag; without `--once` it refreshes",
        '"group":"shipping"',
    ),
    Question(
        "I want to see all topics, and how many messages each has?",
        "firearrow topic list --long",
        "queues, messages and types",
        '"topic":"orders"',
    ),
    Question(
        "I want to know who reads a topic, and how its queues are filled?",
        "firearrow topic show orders",
        "settings, groups, and each queue with its first and next offset",
        '"shipping"',
    ),
    Question(
        "I ask which groups fall behind?",
        "firearrow group list --long",
        "members and lag of each group",
        '"group":"shipping"',
    ),
    Question(
        "one group falls behind, and I want to see where?",
        "firearrow group lag shipping",
        "what is left in each queue, and how old it is; `--watch` refreshes",
        '"topic":"orders"',
    ),
    Question(
        "a script should raise an alarm when a group falls behind?",
        "firearrow group lag shipping --max 3",
        "exit code 1 if more messages wait",
        '"lag":',
        code=1,
    ),
    Question(
        "I want to know which processes consume for a group?",
        "firearrow group members billing",
        "client ids, addresses, languages and versions",
        '"clientId":',
    ),
    Question(
        "messages of a group are lost, and I suspect its subscriptions?",
        "firearrow group diff billing",
        "members that subscribe differently; exit code 1 if there are any",
        "subscribe the same",
    ),
    Question(
        "I want to see the newest messages of a topic?",
        "firearrow tail orders --from -10 --no-follow",
        "the last ten; without `--no-follow` those that come as well",
        '"topic":"orders"',
    ),
    Question(
        "a customer asks for order 42?",
        "firearrow message find orders --key 42",
        "the messages with this key",
        '"keys":["42"]',
    ),
    Question(
        "I know when something was sent and a part of its text?",
        "firearrow message find orders --from -15m --grep 'total.*99'",
        "the messages of this time that match",
        '"body":"{\\"total\\": 99}"',
    ),
    Question(
        "I have the id of a message, and it seems to be lost?",
        "firearrow message path orders ID",
        "where it is stored, which groups have consumed it, its retries; exit code 1 if one did not get it",
        "no member of the group is connected",
        code=1,
    ),
    Question(
        "I want to know whether there are dead letters?",
        "firearrow dlq list",
        "groups with dead letters, and exit code 1 if there are any; `firearrow dlq show billing` shows them",
        '"group":"billing"',
        code=1,
    ),
    Question(
        "the fault is fixed, and the dead letters should be consumed?",
        "firearrow dlq redrive billing --dry-run",
        "what would be sent to its topics again; without `--dry-run` it asks, and sends them",
        "would ",
    ),
    Question(
        "a group should consume the last two hours again?",
        "firearrow group seek shipping orders --to -2h --dry-run",
        "the offsets before and after; without `--dry-run` it asks, and moves them",
        '"from":',
    ),
    Question(
        "a group should stop for a while?",
        "firearrow group pause shipping --dry-run",
        "nothing is lost: `firearrow group pause shipping --resume` lets it go on",
        "would pause group shipping",
    ),
    Question(
        "I want to know what will be delivered later?",
        "firearrow timer list --topic orders",
        "timer and delayed messages by the time at which they are due",
        '"topic":"orders"',
        ours=True,
    ),
    Question(
        "the disk is nearly full, and old messages may go?",
        "firearrow topic trim orders --before -2d --dry-run",
        "how many messages of each queue would be deleted; `firearrow status` shows the largest topics",
        '"trimmed":0',
        ours=True,
    ),
)


def page() -> str:
    lines = [
        "## What do I type when …",
        "",
        "The tests run each command, with FireArrow's broker and with Apache's; those with \\* need FireArrow's.",
        "",
    ]
    for question in QUESTIONS:
        mark = " \\*" if question.ours else ""
        lines.append(f"- … {question.when} `{question.command}`{mark}: {question.answer}")
    return "\n".join(lines) + "\n"
