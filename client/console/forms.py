"""Forms: what a visitor sends, bounded in bytes and in time before anything reads it. Loop thread."""

import asyncio
import contextlib
import time
from collections.abc import Iterator
from urllib.parse import parse_qsl

from starlette.requests import ClientDisconnect, Request
from starlette.types import Message, Receive

from firearrow.client.base.errors import ConfigError

BODY_BYTES_MAX, LOGIN_BYTES_MAX = 6 << 20, 16 << 10
ALL_BODIES_BYTES_MAX = 24 << 20
"""Of the forms of all visitors that are held now."""
BODY_S = 60.0
"""Until a form must be there whole."""
FIELDS_MAX = 200


class TooLarge(ConfigError):
    """The body of a request is too large, or too slow."""


class Bodies:
    """The bodies of all requests that are answered now; `held`: their bytes."""

    def __init__(self) -> None:
        self.held = 0

    @contextlib.contextmanager
    def bounded(self, receive: Receive, most: int) -> Iterator[Receive]:
        """In place of `receive` for one request whose body may have `most` bytes. TooLarge."""
        end_s, received, is_whole = time.monotonic() + BODY_S, 0, False

        async def bounded() -> Message:
            nonlocal received, is_whole
            if is_whole:  # what comes next is the end of the connection
                return await receive()
            try:
                async with asyncio.timeout(end_s - time.monotonic()):
                    message = await receive()
            except TimeoutError:
                raise TooLarge(f"the form was not sent within {BODY_S:.0f} s") from None
            size = len(message.get("body", b""))
            received += size
            self.held += size
            is_whole = not message.get("more_body", False)
            if received > most:
                raise TooLarge(f"a form may have {most:,} bytes here")
            if self.held > ALL_BODIES_BYTES_MAX:
                raise TooLarge("too many large forms are sent now: try again")
            return message

        try:
            yield bounded
        finally:
            self.held -= received


async def form_of(request: Request) -> dict[str, str]:
    """The fields of a form; of several with one name the last. ConfigError: too many, or no form, or not all of
    it."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip()
    if kind != "application/x-www-form-urlencoded":
        raise ConfigError("the request must be a form")
    try:
        body = await request.body()
    except ClientDisconnect:
        raise ConfigError("the connection ended before the form was there") from None
    try:
        text = body.decode("utf-8")
        return dict(parse_qsl(text, keep_blank_values=True, max_num_fields=FIELDS_MAX, errors="strict"))
    except (UnicodeDecodeError, ValueError):
        raise ConfigError("the form cannot be read") from None
