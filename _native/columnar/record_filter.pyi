from collections.abc import Collection
from typing import final

from firearrow._native.columnar.record_spans import Spans

@final
class RecordFilter:
    """All that is given must hold. Of a collection: one of its texts; `keys`: one of the message's keys is one of them.

    Times are ms since 1970, `…_until` is exclusive. An empty collection is met by no record; None asks nothing.
    """

    everything: bool
    """Nothing is asked: `keep` gives back what it got."""
    def __init__(
        self,
        *,
        topics: Collection[str] | None = None,
        tags: Collection[str] | None = None,
        keys: Collection[str] | None = None,
        unique_ids: Collection[str] | None = None,
        stored_from: int | None = None,
        stored_until: int | None = None,
        born_from: int | None = None,
        born_until: int | None = None,
    ) -> None:
        """TypeError: a collection is a single str."""
    def keep(self, spans: Spans) -> Spans:
        """Those that are wanted, in their order, on the same window. RecordError if bytes have changed meanwhile."""
