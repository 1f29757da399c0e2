from collections.abc import Callable, Set
from typing import Any, final

@final
class ReceivedMessage:
    """One received message; fields are decoded on first use. It keeps its whole response alive.

    Setting a field changes this object only. It can be copied and pickled; a copy is equal, and keeps only its own
    bytes alive. Any thread.
    """

    topic: str
    body: bytes
    """Decompressed on first use if needed; raises what the opener raises."""
    broker_name: str
    queue: Any
    """The MessageQueue that it was pulled from."""
    queue_id: int
    queue_offset: int
    reconsume_times: int
    """How often its consumption failed before."""
    @property
    def body_bytes(self) -> int:
        """Size of the body as stored, possibly compressed."""
    @property
    def body_crc(self) -> int: ...
    @property
    def store_size(self) -> int:
        """Size of the record in the log; for a message of an inner batch, of its item."""
    @property
    def flag(self) -> int: ...
    @property
    def sys_flag(self) -> int: ...
    @property
    def physical_offset(self) -> int: ...
    @property
    def born_timestamp(self) -> int:
        """ms since 1970, by the producer's clock."""
    @property
    def store_timestamp(self) -> int:
        """ms since 1970, by the broker's clock."""
    @property
    def born_host(self) -> str:
        """`ip:port`, or `[ip]:port` (IPv6)."""
    @property
    def store_host(self) -> str: ...
    @property
    def prepared_transaction_offset(self) -> int: ...
    @property
    def message_id(self) -> str:
        """The producer's unique id; without one, `offset_message_id`."""
    @property
    def offset_message_id(self) -> str:
        """Broker address and physical offset, in hex."""
    @property
    def transaction_id(self) -> str | None: ...
    @property
    def tags(self) -> str | None: ...
    @property
    def keys(self) -> tuple[str, ...]: ...
    @property
    def properties(self) -> dict[str, str]:
        """The message's own dict, created on first use; changes are kept."""
    def get_property(self, name: str, default: str | None = None) -> str | None:
        """One property, without creating the dict."""
    def put_property(self, name: str, value: str) -> None:
        """Set one property, without creating the dict."""

def decode_messages(
    body: bytes,
    broker_name: str,
    opener: Callable[[int, bytes], bytes],
    *,
    queue: Any = None,  # noqa: ANN401 - a MessageQueue, which this package does not know
    min_offset: int | None = None,
    max_offset: int | None = None,
    offset_delta: int = 0,
    tags: Set[str] | None = None,
) -> list[ReceivedMessage]:
    """The messages of one response, inner batches expanded. RecordError: a record is truncated or its lengths
    do not add up.

    `opener(sys_flag, stored)` decompresses a body. `queue` (a MessageQueue) is set in every message, with its
    id; `min_offset` and `max_offset` set the properties MIN_OFFSET and MAX_OFFSET; `offset_delta` is added to
    the queue offsets (static topics). With `tags` (not empty) only messages with one of these tags are
    returned.
    """
