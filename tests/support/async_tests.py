"""A hook for conftest modules: coroutine functions are tests, each in a loop of its own."""

import asyncio
import inspect

import pytest


def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a coroutine function as a test."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    arguments = {name: pyfuncitem.funcargs[name] for name in names}
    with asyncio.Runner() as runner:
        runner.run(pyfuncitem.obj(**arguments))
    return True
