"""Errors that are answered, and errors that stop the start. No policy here."""

from collections.abc import Mapping

FAQ = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."


class Refusal(Exception):
    """A request that is answered with `code` (a ResponseCode) and `remark`; the connection lives on."""

    def __init__(self, code: int, remark: str, ext: Mapping[str, str] | None = None) -> None:
        super().__init__(remark)
        self.code = code
        self.remark = remark
        self.ext = ext


class StartError(Exception):
    """The broker cannot start; the text is one sentence that says what to do. Exit code 3."""


def with_faq(remark: str) -> str:
    """A remark with Apache's pointer to its FAQ page; its tools look for the line feed and `See`."""
    return remark + FAQ
