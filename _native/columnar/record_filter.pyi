from collections.abc import Collection
from typing import final

from firearrow._native.columnar.record_spans import Spans

@final
class RecordFilter:
    """Selects the records that meet all conditions. A collection holds the accepted strings; `keys`: one of the
    message's keys must be in it.

    Times are ms since 1970, `…_until` is exclusive. No record matches an empty collection; None: no condition.
    """

    everything: bool
    """No condition is set: `keep` returns its argument."""
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
        """The records that match, in their order, on the same window.

        RecordError: the bytes have changed since the records were found.
        """
