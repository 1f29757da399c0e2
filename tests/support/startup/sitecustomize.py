"""Python imports this module first in a process whose PYTHONPATH has this folder (see the package)."""

import builtins
import importlib
import os
import sys
from typing import Any

if interval := os.environ.get("FIREARROW_TEST_SWITCH_S"):
    sys.setswitchinterval(float(interval))


def set_constants(values: str) -> None:
    """`module:NAME=value;…`"""
    for each in values.split(";"):
        name, _, value = each.partition("=")
        module_name, _, constant = name.partition(":")
        number = float(value)
        module = importlib.import_module(module_name)
        setattr(module, constant, int(number) if number.is_integer() else number)


if constants := os.environ.get("FIREARROW_TEST_CONSTANTS"):
    set_constants(constants)


def _inject(fault: str) -> None:
    method, _, rest = fault.partition("=")
    error, _, when = rest.partition("@")
    module_name, _, path = method.partition(":")
    class_name, _, name = path.partition(".")
    module = importlib.import_module(module_name)
    faulty = type(class_name, (getattr(module, class_name),), {})  # compiled classes cannot be changed
    before: Any = getattr(faulty, name)

    def fail(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        if os.path.exists(when):
            raise getattr(builtins, error)("injected by a test")
        return before(self, *args, **kwargs)

    setattr(faulty, name, fail)
    setattr(module, class_name, faulty)


if fault := os.environ.get("FIREARROW_TEST_FAULT"):
    _inject(fault)
