"""Recorder: a callable that records the arguments of its calls."""

from typing import Any


class Recorder(list[tuple[Any, ...]]):
    """The arguments of each call, in order."""

    def __call__(self, *args: object) -> None:
        self.append(args)
