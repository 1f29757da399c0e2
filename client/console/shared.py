"""What the pages of a visitor share for a moment: whole lists of a cluster, which several questions of one page need,
and which its next page shows again. Loop thread."""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from functools import cached_property
from typing import Any, TypeVar

from firearrow.client.admin_api.admin import Admin
from firearrow.client.admin_api.records import GroupConfig

T = TypeVar("T")
SHARED_S = 1.5


class Shared:
    """Answers by what was asked; those who ask meanwhile wait for the same answer. Nobody may change an answer."""

    def __init__(self) -> None:
        self._answers: dict[Hashable, asyncio.Task[Any]] = {}

    async def once(self, key: Hashable, ask: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The answer of less than SHARED_S ago, or a new one. Errors are not kept."""
        task = self._answers.get(key)
        if task is None:
            task = asyncio.create_task(ask())
            self._answers[key] = task
            task.add_done_callback(lambda done: self._answered(key, done))
        answer: T = await asyncio.shield(task)
        return answer

    def _answered(self, key: Hashable, task: asyncio.Task[Any]) -> None:
        if task.cancelled() or task.exception() is not None:
            self._drop(key, task)
        else:
            asyncio.get_running_loop().call_later(SHARED_S, self._drop, key, task)

    def _drop(self, key: Hashable, task: asyncio.Task[Any]) -> None:
        if self._answers.get(key) is task:
            del self._answers[key]

    def clear(self) -> None:
        """Something was changed."""
        self._answers.clear()


class PageAdmin(Admin):
    """An Admin whose list of groups is shared: each question about a group asks whether there is one."""

    @cached_property
    def shared(self) -> Shared:
        return Shared()

    async def groups(self) -> dict[str, GroupConfig]:
        return await self.shared.once("groups", super().groups)
