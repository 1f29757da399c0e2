"""Who sent the newest messages of a topic: their senders' addresses, and the clients that are connected from there.

Brokers know the groups of producers, but not their topics; messages have the address that they were sent from.
"""

from dataclasses import dataclass
from typing import Any

from firearrow.client.cli.command import Call
from firearrow.client.cli.groups.clients import connected_clients
from firearrow.client.cli.messages.queue_reader import From, Start, TopicReader
from firearrow.client.cli.output import Column, Kind, titled

COLUMNS = (
    Column("clientId", "CLIENT"),
    *titled("address", "language", "version"),
    Column("producerGroups", "SENDS FOR"),
    Column("messages", "MESSAGES", Kind.COUNT),
    Column("lastMs", "LAST MESSAGE", Kind.TIME),
)


@dataclass(slots=True)
class _Sent:
    messages: int = 0
    last_ms: int = 0


async def list_producers(call: Call) -> None:
    """See `topic producers`."""
    given, admin = call.arguments, await call.admin()
    reader, sent = TopicReader(admin, given.topic, failed=call.output.note), dict[str, _Sent]()
    async for message in reader.stored(await reader.spans(Start(From.LAST, given.limit))):
        found = sent.setdefault(message.born_host, _Sent())
        found.messages += 1
        found.last_ms = max(found.last_ms, message.store_timestamp)
    connected = {row["address"]: row for row in (await connected_clients(call, is_all=True))[1]}
    rows = [_row(address, found, connected.get(address, {})) for address, found in sent.items()]
    call.output.rows(COLUMNS, sorted(rows, key=lambda row: -row["lastMs"]))


def _row(address: str, found: _Sent, client: dict[str, Any]) -> dict[str, Any]:
    """`client`: empty if it is no longer connected."""
    names = ("clientId", "language", "version", "producerGroups")
    known = {name: client.get(name) or None for name in names}
    return {"address": address, **known, "messages": found.messages, "lastMs": found.last_ms}
