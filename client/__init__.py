"""The Python client of FireArrow, for FireArrow's and Apache RocketMQ's brokers.

`Producer`, `PushConsumer`, `PullConsumer`, `PopConsumer` and `Admin` belong to an event loop;
`firearrow.client.blocking` offers the same without `await`. The public names (client/public.py) are imported
on first use, so that programs that need a single subpackage, such as Spark's workers, start quickly.
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
