"""Errors that are answered, and errors that stop the start. No policy here."""

from collections.abc import Mapping


class Refusal(Exception):
    """A request that is answered with `code` (a ResponseCode) and `remark`; the connection lives on."""

    def __init__(self, code: int, remark: str, ext: Mapping[str, str] | None = None) -> None:
        super().__init__(remark)
        self.code = code
        self.remark = remark
        self.ext = ext


class StartError(Exception):
    """The broker cannot start; the text is one sentence that says what to do. Exit code 3."""
