"""List connected clients, and close the connections of one."""

import asyncio
import re
from collections.abc import Iterable, Sequence
from typing import Any

from firearrow.client.admin_api.admin import Admin
from firearrow.client.admin_api.cluster_admin import Operations
from firearrow.client.admin_api.extension_records import BrokerConnection
from firearrow.client.admin_api.extensions import Extensions
from firearrow.client.admin_api.records import Connection
from firearrow.client.base.errors import BrokerError, OnlyFireArrow
from firearrow.client.cli.command import FOUND_TROUBLE, Call, Command, of_each
from firearrow.client.cli.formats import version_text
from firearrow.client.cli.output import Column, Kind, titled

COLUMNS = (
    Column("clientId", "CLIENT"),
    *titled("address", "protocol", "language", "version"),
    Column("groups", "CONSUMES FOR"),
    Column("producerGroups", "SENDS FOR"),
)
CONNECTIONS_MAX = 1000
ADDRESS = re.compile(r"[0-9a-fA-F.:\[\]]+:[0-9]{1,5}")
"""Client ids have an @."""
OURS = (*COLUMNS, Column("sinceMs", "SINCE", Kind.TIME), Column("lastRequestMs", "LAST REQUEST", Kind.TIME))


def declared() -> Command:
    """The command with its verbs."""
    command = Command("clients", __doc__)
    verb = command.verb("list", list_clients)
    verb.argument("--group", help="only clients of this consumer or producer group")
    verb.argument(
        "--all", action="store_true", help="include connections to name servers, and those of this command"
    )
    verb = command.verb("close", close)
    verb.argument("client", help="client id, or address HOST:PORT")
    verb.moving()
    return command


def main(arguments: Sequence[str]) -> int:
    return declared().run(arguments)


async def list_clients(call: Call) -> None:
    """List connected clients with their addresses, protocols, versions and groups. Apache brokers report only clients
    of groups.

    firearrow clients list
    firearrow clients list --group billing
    """
    group = call.arguments.group
    columns, rows = await connected_clients(call, is_all=call.arguments.all)
    if group is not None:
        rows = [row for row in rows if group in (*row["groups"], *row["producerGroups"])]
    call.output.rows(columns, sorted(rows, key=lambda row: (row["clientId"], row["address"])))


async def connected_clients(call: Call, *, is_all: bool) -> tuple[Sequence[Column], list[dict[str, Any]]]:
    """Columns and rows. `is_all`: with connections to name servers, and those of this command."""
    admin = await call.admin()
    try:
        found = await Extensions(admin).connections(limit=CONNECTIONS_MAX)
    except OnlyFireArrow:
        return COLUMNS, await _clients_of_groups(admin)
    if found.more:
        call.output.note(f"of each broker only the oldest {CONNECTIONS_MAX} are listed")
    return OURS, [_our_row(each) for each in found if is_all or not (each.to_name_server or each.asks)]


async def _clients_of_groups(admin: Admin) -> list[dict[str, Any]]:
    """One request for each group: Apache's brokers list no connections."""
    groups, producers = await asyncio.gather(admin.groups(), _producers(admin))
    rows: dict[tuple[str, str], dict[str, Any]] = {}

    def add(member: str, group: str, connections: Iterable[Connection]) -> None:
        for each in connections:
            row = rows.setdefault((each.client_id, each.address), _row(each))
            row[member].append(group)

    async def consumers(group: str) -> tuple[Connection, ...]:
        try:
            return (await admin.consumers(group)).connections
        except BrokerError:  # it has no members
            return ()

    for group, connections in zip(groups, await of_each(list(groups), consumers), strict=True):
        add("groups", group, connections)
    for group, connections in producers.items():
        add("producerGroups", group, connections)
    return list(rows.values())


async def _producers(admin: Admin) -> dict[str, tuple[Connection, ...]]:
    """Brokers before 4.9.3 do not list them."""
    try:
        return await Operations(admin).producers()
    except BrokerError:
        return {}


def _row(connection: Connection) -> dict[str, Any]:
    return {
        "clientId": connection.client_id,
        "address": connection.address,
        "protocol": "remoting",
        "language": connection.language,
        "version": version_text(connection.version),
        "groups": [],
        "producerGroups": [],
    }


def _our_row(connection: BrokerConnection) -> dict[str, Any]:
    return {
        "clientId": connection.client_id,
        "address": connection.address,
        "protocol": connection.protocol,
        "language": connection.language,
        "version": _version_of(connection),
        "groups": list(connection.groups),
        "producerGroups": list(connection.producer_groups),
        "sinceMs": connection.since_ms,
        "lastRequestMs": connection.last_request_ms,
    }


def _version_of(connection: BrokerConnection) -> str:
    """Clients of gRPC state their own; the broker sends its own number for them."""
    if connection.client_version:
        return connection.client_version
    return version_text(connection.version) if connection.version else ""


async def close(call: Call) -> int:
    """Close the connections of a client; it connects again if it still runs. Only FireArrow brokers support this.

    firearrow clients close 10.0.0.7:51234
    firearrow clients close 10.0.0.7@4711 --yes
    """
    client = call.arguments.client
    extensions = Extensions(await call.admin())
    if not call.may(f"close the connections of client {client}"):
        return 0
    named = ADDRESS.fullmatch(client)
    closed = await extensions.close_connection(
        address=client if named else "", client_id="" if named else client
    )
    call.output.done(f"closed {closed} connections", {"client": client, "closed": closed})
    return 0 if closed else FOUND_TROUBLE
