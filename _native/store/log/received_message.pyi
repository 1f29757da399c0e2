from collections.abc import Callable, Set
from typing import Any, final

@final
class ReceivedMessage:
    """One received message, decoded when asked. It keeps the whole answer it came in alive.

    What may be set is changed for this process only. Equal only to itself. Any thread.
    """

    topic: str
    body: bytes
    """Opened at the first use if it was compressed; raises what the opener raises."""
    broker_name: str
    queue: Any
    """The MessageQueue that was asked."""
    queue_id: int
    queue_offset: int
    reconsume_times: int
    """How often it was given back before."""
    @property
    def body_bytes(self) -> int:
        """Size of the body as stored, maybe compressed."""
    @property
    def body_crc(self) -> int: ...
    @property
    def store_size(self) -> int:
        """Size of the record in the log; of an inner message, of its item."""
    @property
    def flag(self) -> int: ...
    @property
    def sys_flag(self) -> int: ...
    @property
    def physical_offset(self) -> int: ...
    @property
    def born_timestamp(self) -> int:
        """ms, as the sender's clock said."""
    @property
    def store_timestamp(self) -> int:
        """ms, as the broker's clock said."""
    @property
    def born_host(self) -> str:
        """`ip:port`, or `[ip]:port` (IPv6)."""
    @property
    def store_host(self) -> str: ...
    @property
    def prepared_transaction_offset(self) -> int: ...
    @property
    def message_id(self) -> str:
        """The sender's unique id; without one, `offset_message_id`."""
    @property
    def offset_message_id(self) -> str:
        """Names the place in the broker's log."""
    @property
    def transaction_id(self) -> str | None: ...
    @property
    def tags(self) -> str | None: ...
    @property
    def keys(self) -> tuple[str, ...]: ...
    @property
    def properties(self) -> dict[str, str]:
        """The message's own dict, made at the first use: changes are kept."""
    def get_property(self, name: str, default: str | None = None) -> str | None:
        """One property without making the dict."""
    def put_property(self, name: str, value: str) -> None:
        """Set one property without making the dict."""

def decode_messages(
    body: bytes,
    broker_name: str,
    opener: Callable[[int, bytes], bytes],
    *,
    queue: Any = None,  # noqa: ANN401 - a MessageQueue, which this room does not know
    min_offset: int | None = None,
    max_offset: int | None = None,
    offset_delta: int = 0,
    tags: Set[str] | None = None,
) -> list[ReceivedMessage]:
    """The messages of one answer, inner batches expanded. RecordError: anything in it is cut or does not add up.

    `opener(sys_flag, stored)` opens a compressed body. Given `queue` (a MessageQueue), it and its id are set in every
    message; given the offsets, the properties MIN_OFFSET and MAX_OFFSET are; `offset_delta` is added to the queue
    offsets (static topics). Given `tags` (not empty), only messages with one of these tags are returned.
    """
