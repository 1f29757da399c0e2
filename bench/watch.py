"""Watch: a context that samples something periodically in a separate thread."""

import threading
from types import TracebackType
from typing import Self


class Watch:
    """`look` runs in the thread every `every_s`. The context may be entered again after it was left."""

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s

    def look(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(self._every_s):
            self.look()
