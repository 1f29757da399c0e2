"""Errors that become an answer, and errors that stop the start."""

from collections.abc import Mapping

FAQ = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."


class Refusal(Exception):
    """The request is answered with `code` (a ResponseCode) and `remark`, `delay_s` later; the connection stays open.
    `passes`: the same request may be let through a moment later."""

    def __init__(
        self,
        code: int,
        remark: str,
        ext: Mapping[str, str] | None = None,
        *,
        delay_s: float = 0.0,
        passes: bool = False,
    ) -> None:
        super().__init__(remark)
        self.code = code
        self.remark = remark
        self.ext = ext
        self.delay_s = delay_s
        self.passes = passes


class StartError(Exception):
    """The broker cannot start. The text is one sentence that states what to do. Exit code 3."""


class UsageError(Exception):
    """The arguments of a command are wrong. The text is one sentence that states what to do. Exit code 2."""


def with_faq(remark: str) -> str:
    """The remark with Apache's link to its FAQ. Apache's tools look for the line feed and `See`."""
    return remark + FAQ
