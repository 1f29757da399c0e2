"""Clock: the source of time that is passed to all logic, which never reads the time itself."""

from firearrow._native.base.clock import Clock

__all__ = ["Clock"]
