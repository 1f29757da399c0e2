"""Marks: what the store reported to a workload, written into the recorder's log at that moment.

A mark is made before what it announces (`putting`, `dropping`, `saving`) or after what it acknowledges (`written`,
`synced`, `saved`), so that the log states at any call what may be there and what must be.
"""

import ctypes
import json
from collections.abc import Callable


class Marks:
    """Does nothing if no recorder is loaded."""

    def __init__(self) -> None:
        self._mark: Callable[[bytes], object] | None = getattr(ctypes.CDLL(None), "crash_mark", None)

    def __call__(self, what: str, **values: object) -> None:
        if self._mark is not None:
            self._mark(json.dumps({"what": what, **values}).encode())
