"""Members of a group: a client is one member, on the newest of its connections. Loop thread."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from firearrow._native.wire.codes import LanguageCode
from firearrow.broker.base.peer import REMOTING, Peer

SILENT_MS = 90_000
"""Without a heartbeat, of which clients send one each 30 s; the connection is closed after channelExpiredTimeout."""
LANGUAGES: dict[int, str] = {int(language): language.name for language in LanguageCode}


@dataclass(slots=True, eq=False)
class Member:
    """One client of one group on one connection. `language` and `version` are the codes of its requests."""

    client_id: str
    peer: Peer
    language: int
    version: int
    seen_ms: int
    user: str | None = None
    """Who sent the heartbeat; None: anybody may."""
    protocol: str = REMOTING
    digest: int = 0
    """What it subscribes to (`SubscriptionDigest`); 0: nothing, or not known."""

    @property
    def language_name(self) -> str:
        return LANGUAGES.get(self.language, "OTHER")

    def is_newer_than(self, other: "Member") -> bool:
        """Whether its connection is open and was made later."""
        return not self.peer.closed and self.peer.number > other.peer.number

    def to_object(self) -> dict[str, object]:
        """The connection as the answers to 203 and 204 describe it."""
        host, port = self.peer.remote[:2]
        return {
            "clientAddr": f"{host}:{port}",
            "clientId": self.client_id,
            "language": self.language_name,
            "version": self.version,
        }


class Members(Mapping[Peer, Member]):
    """By connection, in the order in which they joined.

    A client that connects again after its connection died without a word is not two members: half of the queues would
    be a namesake's. A client is an id and its user, so that no other user can take a member's place. An older
    connection takes the place back only if the newer one is silent: two that both work do not take turns.
    """

    __slots__ = ("_by_client", "_by_peer")

    def __init__(self) -> None:
        self._by_peer: dict[Peer, Member] = {}
        self._by_client: dict[tuple[str, str | None], Member] = {}

    def __getitem__(self, peer: Peer) -> Member:
        return self._by_peer[peer]

    def __iter__(self) -> Iterator[Peer]:
        return iter(self._by_peer)

    def __len__(self) -> int:
        return len(self._by_peer)

    def newer(self, member: Member) -> Peer | None:
        """The client's newer connection here, unless that is silent while the member's is not."""
        newest = self._by_client.get((member.client_id, member.user))
        if newest is None or newest.peer.number <= member.peer.number:
            return None
        return None if member.seen_ms - newest.seen_ms > SILENT_MS else newest.peer

    def put(self, member: Member) -> Peer | None:
        """Add or update; returns the older connection of the same client that it replaces. What a client subscribes to
        is kept."""
        client = (member.client_id, member.user)
        before, older = self._by_peer.get(member.peer), self._by_client.get(client)
        if before is not None and (before.client_id, before.user) != client:
            del self._by_client[before.client_id, before.user]
        known = before or older
        member.digest = 0 if known is None else known.digest
        self._by_peer[member.peer] = self._by_client[client] = member
        if older is None or older.peer is member.peer:
            return None
        del self._by_peer[older.peer]
        return older.peer

    def remove(self, peer: Peer) -> bool:
        """False if it is not a member."""
        member = self._by_peer.pop(peer, None)
        if member is None:
            return False
        del self._by_client[member.client_id, member.user]
        return True
