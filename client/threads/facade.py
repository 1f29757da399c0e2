"""Facade: blocking methods for an object of the event loop: each call runs in the loop, the caller waits.

Contains no logic. Any thread except the loop's own.
"""

import weakref
from collections.abc import Callable, Coroutine
from functools import partial, update_wrapper
from types import TracebackType
from typing import Any, ClassVar, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

from firearrow.client.base.service_state import Startable, Uncopied
from firearrow.client.threads.loop_thread import LoopThread

P = ParamSpec("P")
Result = TypeVar("Result")


Inner = TypeVar("Inner", bound=Startable)
AnyInner = TypeVar("AnyInner")
AnyFacade = TypeVar("AnyFacade", bound="Facade[Any]")


class LoopObject(Uncopied, Generic[AnyInner]):
    """An object of the loop whose methods a façade calls with `Verb`."""

    _thread: LoopThread
    _inner: AnyInner


class Facade(LoopObject[Inner]):
    """`make` creates the inner object, in the loop. Use the façade in `with`, or call `start` and `close`.

    A façade that was made before a fork does not work in the child. Open ones are closed when the interpreter
    exits, or when they are dropped: in a notebook, the old object of a cell that runs again.
    """

    _closes_when_dropped: ClassVar[bool] = True

    def __init__(self, make: Callable[[], Inner]) -> None:
        self._thread = LoopThread.current()
        self._inner = self._thread.call(make)
        if self._closes_when_dropped:
            weakref.finalize(self, self._thread.close_dropped, self._inner).atexit = False

    def start(self) -> Self:
        self._thread.run(self._inner.start)
        return self

    def close(self) -> None:
        self._thread.run(self._inner.close)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.run(partial(self._inner.__aexit__, kind, error, trace))


def makes(
    inner: Callable[P, Inner],
) -> Callable[[Callable[[AnyFacade, Callable[[], Inner]], None]], Callable[Concatenate[AnyFacade, P], None]]:
    """Give a façade's `__init__` the signature of `inner`; it receives a factory of the inner object."""

    def decorate(
        init: Callable[[AnyFacade, Callable[[], Inner]], None],
    ) -> Callable[Concatenate[AnyFacade, P], None]:
        def made(facade: AnyFacade, /, *args: P.args, **kwargs: P.kwargs) -> None:
            init(facade, partial(inner, *args, **kwargs))

        update_wrapper(made, inner.__init__)
        return made

    return decorate


class Verb(Generic[P, Result]):
    """A coroutine method of the inner object, with the same arguments, result and errors."""

    def __init__(self, method: Callable[Concatenate[Any, P], Coroutine[Any, Any, Result]]) -> None:
        self.__wrapped__ = method
        self.__doc__ = method.__doc__

    @overload
    def __get__(self, facade: None, owner: type) -> Self: ...
    @overload
    def __get__(self, facade: LoopObject[Any], owner: type) -> Callable[P, Result]: ...
    def __get__(self, facade: LoopObject[Any] | None, owner: type) -> "Self | Callable[P, Result]":
        return self if facade is None else partial(self._run, facade)

    def _run(self, facade: LoopObject[Any], *args: P.args, **kwargs: P.kwargs) -> Result:
        return facade._thread.run(partial(self.__wrapped__, facade._inner, *args, **kwargs))


class LoopVerb(Generic[P, Result]):
    """A plain method of the inner object that must be called in the loop."""

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
