from collections.abc import Callable
from typing import final

from firearrow._native.wire.pending_calls import PendingCalls

@final
class SendFields:
    """The fields that differ between the messages of a topic, the same in each attempt to send one."""

    code: int
    sys_flag: int
    flag: int
    reconsume_times: int
    max_reconsume_times: int
    def __init__(
        self,
        *,
        code: int = 310,
        sys_flag: int = 0,
        flag: int = 0,
        reconsume_times: int = 0,
        max_reconsume_times: int = -1,
    ) -> None:
        """`max_reconsume_times` -1: not in the frame."""

@final
class SendFrames:
    """SEND frames of one group and topic, field for field as the Java client writes them."""

    def __init__(
        self,
        group: str,
        topic: str,
        *,
        default_topic: str = "TBW102",
        default_queues: int = 4,
        unit_mode: bool = False,
        binary: bool = False,
    ) -> None: ...
    def frame(
        self,
        opaque: int,
        queue_id: int,
        born_ms: int,
        properties: bytes,
        body: bytes,
        fields: SendFields = ...,
        *,
        broker_name: str | None = None,
        oneway: bool = False,
    ) -> bytes:
        """One complete frame. ValueError: it is over the limit."""

@final
class SendAnswer:
    """A broker's response to a send; missing numbers are -1, missing strings None."""

    code: int
    remark: str | None
    queue_id: int
    queue_offset: int
    offset_message_id: str | None
    transaction_id: str | None
    batch_unique_id: str | None
    recall_handle: str | None
    region: str
    trace_on: bool

def post(
    channel: PendingCalls,
    opaque: int,
    frame: bytes,
    done: Callable[[SendAnswer | BaseException], object],
    timeout_s: float,
) -> None:
    """Send a frame whose opaque is `channel.next_opaque()`. Calls `done` once, with the response or the
    failure.

    Raises the exception of the channel's `failure` if nothing can be sent; then `done` is not called.
    """
