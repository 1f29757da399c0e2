"""The Python client of FireArrow, for FireArrow's and Apache RocketMQ's brokers.

`Producer`, `PushConsumer`, `PullConsumer`, `PopConsumer` and `Admin` live in an event loop; `firearrow.client.blocking`
has the same without `await`. The public names (client/public.py) are loaded on first use, so that a program that needs
one package only, such as a Spark worker, does not wait for all.

- `public`: the names above, and all that `firearrow.client` exports
- `blocking`: the same objects without `await`
- `store`: a store folder read as files
- `local_broker`: a broker as a child process
- `pytest_plugin`: fixtures for tests of your services
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from firearrow.client.public import *  # noqa: F403
else:
    _MODULES = ("blocking", "store") if sys.platform == "linux" else ("blocking",)

    def __getattr__(name: str) -> object:
        if name in _MODULES:
            return import_module(f"{__name__}.{name}")
        public = import_module("firearrow.client.public")
        if name != "__all__" and name not in public.__all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(public, name)

    def __dir__() -> list[str]:
        return sorted([*_MODULES, *import_module("firearrow.client.public").__all__])
