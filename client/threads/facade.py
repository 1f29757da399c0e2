"""Facade: an object of the event loop, used from other threads: each verb is done in the loop and waited for.

Holds no logic of its own. Any thread, but the loop's own.
"""

from collections.abc import Callable, Coroutine
from functools import partial, update_wrapper
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

from firearrow.client.base.service_state import Startable
from firearrow.client.threads.loop_thread import LoopThread

P = ParamSpec("P")
Result = TypeVar("Result")


Inner = TypeVar("Inner", bound=Startable)
AnyFacade = TypeVar("AnyFacade", bound="Facade[Any]")


class Facade(Generic[Inner]):
    """`make` makes the object within, in the loop. Use it in `with`, or `start` and `close` it.

    Made before a fork it is of no use after it. What is open when the interpreter ends is closed then.
    """

    def __init__(self, make: Callable[[], Inner]) -> None:
        self._thread = LoopThread.current()
        self._inner = self._thread.call(make)

    def start(self) -> Self:
        self._thread.run(self._inner.start)
        self._thread.opened(self._inner)
        return self

    def close(self) -> None:
        self._close(self._inner.close)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close(partial(self._inner.__aexit__, kind, error, trace))

    def _close(self, closing: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            self._thread.run(closing)
        finally:
            self._thread.closed(self._inner)


def makes(
    inner: Callable[P, Inner],
) -> Callable[[Callable[[AnyFacade, Callable[[], Inner]], None]], Callable[Concatenate[AnyFacade, P], None]]:
    """Decorates the `__init__` of a façade: callers give the arguments of `inner`, it gets what makes one with them."""

    def decorate(
        init: Callable[[AnyFacade, Callable[[], Inner]], None],
    ) -> Callable[Concatenate[AnyFacade, P], None]:
        def made(facade: AnyFacade, /, *args: P.args, **kwargs: P.kwargs) -> None:
            init(facade, partial(inner, *args, **kwargs))

        update_wrapper(made, inner.__init__)
        return made

    return decorate


class Verb(Generic[P, Result]):
    """An asynchronous verb of the object within, with the same arguments, result and errors."""

    def __init__(self, method: Callable[Concatenate[Any, P], Coroutine[Any, Any, Result]]) -> None:
        self.__wrapped__ = method
        self.__doc__ = method.__doc__

    @overload
    def __get__(self, facade: None, owner: type) -> Self: ...
    @overload
    def __get__(self, facade: Facade[Any], owner: type) -> Callable[P, Result]: ...
    def __get__(self, facade: Facade[Any] | None, owner: type) -> "Self | Callable[P, Result]":
        return self if facade is None else partial(self._run, facade)

    def _run(self, facade: Facade[Any], *args: P.args, **kwargs: P.kwargs) -> Result:
        return facade._thread.run(partial(self.__wrapped__, facade._inner, *args, **kwargs))


class LoopVerb(Generic[P, Result]):
    """A verb of the object within that does not wait for anything but must be called in the loop."""

    def __init__(self, method: Callable[Concatenate[Any, P], Result]) -> None:
        self.__wrapped__ = method
        self.__doc__ = method.__doc__

    @overload
    def __get__(self, facade: None, owner: type) -> Self: ...
    @overload
    def __get__(self, facade: Facade[Any], owner: type) -> Callable[P, Result]: ...
    def __get__(self, facade: Facade[Any] | None, owner: type) -> "Self | Callable[P, Result]":
        return self if facade is None else partial(self._call, facade)

    def _call(self, facade: Facade[Any], *args: P.args, **kwargs: P.kwargs) -> Result:
        return facade._thread.call(partial(self.__wrapped__, facade._inner, *args, **kwargs))
