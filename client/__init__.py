"""The Python client of FireArrow, for FireArrow's and Apache RocketMQ's brokers.

`Producer`, `PushConsumer`, `PullConsumer`, `PopConsumer` and `Admin` live in an event loop; `firearrow.client.blocking`
has the same without `await`. What is shown here (client/public.py) is loaded when the first of it is asked for: who
wants one room only, as Spark's workers do, does not wait for all of them.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from firearrow.client.public import *  # noqa: F403
else:

    def __getattr__(name: str) -> object:
        public = import_module("firearrow.client.public")
        if name != "__all__" and name not in public.__all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(public, name)
