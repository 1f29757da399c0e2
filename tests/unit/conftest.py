"""Tests that start no process, by the package that they test: thousands in less than a minute.

What they share with tests of running brokers is in the folder of those, such as `tests/store`.
"""

from tests.support.async_tests import pytest_pyfunc_call

__all__ = ["pytest_pyfunc_call"]
