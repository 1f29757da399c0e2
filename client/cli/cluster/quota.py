"""Manage quotas of users, topics, groups and addresses (FireArrow only)."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from firearrow.client.admin_api.extensions import Extensions
from firearrow.client.base.errors import ConfigError
from firearrow.client.cli.command import Call, Command
from firearrow.client.cli.output import Column, Kind, titled

MEMBERS = {
    "messages_in": "messagesInPerSecond",
    "bytes_in": "bytesInPerSecond",
    "messages_out": "messagesOutPerSecond",
    "bytes_out": "bytesOutPerSecond",
    "connections": "connections",
}
"""Options → what brokers call them."""
COLUMNS = (
    *titled("broker", "entity", "name", "quota"),
    *titled("value", "used", "delayed", "refused", kind=Kind.COUNT),
    Column("byDefault", "BY DEFAULT"),
)
UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 2**10, "mi": 2**20, "gi": 2**30}
AMOUNT = re.compile(r"([0-9]{1,15})([kmg]i?)?b?", re.IGNORECASE)


def main(arguments: Sequence[str]) -> int:
    command = Command("quota", __doc__)
    verb = command.verb("set", set_quota)
    _entity(verb)
    verb.argument("--messages-in", metavar="N", help="messages sent per second (user, topic)")
    verb.argument(
        "--bytes-in", metavar="SIZE", help="bytes of bodies and properties sent per second (user, topic)"
    )
    verb.argument("--messages-out", metavar="N", help="messages read per second (user, topic, group)")
    verb.argument(
        "--bytes-out", metavar="SIZE", help="bytes of messages read per second (user, topic, group)"
    )
    verb.argument("--connections", metavar="N", help="open connections (user, address)")
    command.verb("list", list_quotas)
    verb = command.verb("delete", delete)
    _entity(verb)
    return command.run(arguments)


def _entity(verb: Any) -> None:  # noqa: ANN401 (a verb of Command)
    kinds = ("user", "topic", "group", "address")
    verb.argument("entity", choices=kinds, metavar="ENTITY", help=", ".join(kinds))
    verb.argument("name", help="name, or * for each that has no quotas of its own")


async def set_quota(call: Call) -> None:
    """Set quotas of a user, topic, group or address. Quotas that are not named stay as they are.

    firearrow quota set user app --messages-in 500 --bytes-in 1MiB
    firearrow quota set address '*' --connections 100
    """
    given = vars(call.arguments)
    changes = {
        member: amount(f"--{option.replace('_', '-')}", given[option])
        for option, member in MEMBERS.items()
        if given[option] is not None
    }
    if not changes:
        raise ConfigError("give at least one quota, such as --messages-in 500")
    extensions = Extensions(await call.admin())
    await extensions.set_quota(call.arguments.entity, call.arguments.name, changes)


async def delete(call: Call) -> None:
    """Delete all quotas of a user, topic, group or address. The quotas of `*` apply to it from then on, if there are
    any.

        firearrow quota delete user app
        firearrow quota delete address '*'
    """
    given = call.arguments
    extensions = Extensions(await call.admin())
    await extensions.delete_quotas(given.entity, given.name)


async def list_quotas(call: Call) -> None:
    """List quotas, and what was used of them in the last second. The table also shows how many requests were delayed
    and refused.

        firearrow quota list
        firearrow quota list --json
    """
    found = await Extensions(await call.admin()).quotas()
    rows = [
        row
        for each in found
        for row in _rows(
            each.quotas,
            each.used,
            {
                "broker": each.broker,
                "entity": each.entity,
                "name": each.name,
                "delayed": each.delayed,
                "refused": each.refused,
                "byDefault": "yes" if each.by_default else "",
            },
        )
    ]
    call.output.rows(COLUMNS, rows)
    if found.more:
        call.output.note("there are more of one broker: only these are listed")


def _rows(
    quotas: Mapping[str, int], used: Mapping[str, int], of: Mapping[str, object]
) -> list[dict[str, object]]:
    return [
        {**of, "quota": member, "value": value, "used": used.get(member, 0)}
        for member, value in quotas.items()
    ]


def amount(what: str, text: str) -> int:
    """`500`, `10k`, `1MiB`. ConfigError."""
    match = AMOUNT.fullmatch(text)
    if match is None:
        raise ConfigError(f"{what}: {text!r} is no number: write 500, 10k or 1MiB")
    return int(match[1]) * UNITS[(match[2] or "").lower()]
