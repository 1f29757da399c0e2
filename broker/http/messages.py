"""HTTP/1.1 requests and responses as bytes. Everything from outside is bounded; only GET and HEAD exist here.

Pure functions. A request with a body is refused, so that the next one begins after the blank line.
"""

import re
from collections.abc import AsyncIterator, Mapping
from http import HTTPStatus
from typing import NamedTuple

HEAD_BYTES_MAX = 8192
"""Of a request line with all header lines."""
TARGET_BYTES_MAX = 2048
HEADERS_MAX = 64
END = b"\r\n\r\n"
_REQUEST_LINE = re.compile(rb"([A-Za-z]{1,16}) ([\x21-\x7e]+) HTTP/1\.([01])")
_HEADER = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]{1,256}):([\t\x20-\x7e\x80-\xff]*)")
METHODS = ("GET", "HEAD")


class BadRequest(Exception):
    """The request is answered with this status, and the connection closed."""

    def __init__(self, status: HTTPStatus, text: str) -> None:
        super().__init__(text)
        self.status = status


class Request(NamedTuple):
    """`path`: without query. `headers`: names in lower case. `minor`: of the version, 1.0 or 1.1."""

    method: str
    path: str
    headers: Mapping[str, str]
    minor: int

    @property
    def keeps_alive(self) -> bool:
        connection = self.headers.get("connection", "").lower()
        return "close" not in connection if self.minor else "keep-alive" in connection

    def accepts(self, header: str, word: str) -> bool:
        """Whether the header names `word` and does not forbid it with q=0."""
        for part in self.headers.get(header, "").lower().split(","):
            name, *parameters = (text.strip() for text in part.split(";"))
            if name == word:
                return not any(re.fullmatch(r"q=0(\.0*)?", text) for text in parameters)
        return False


class Response(NamedTuple):
    """`body`: all of it, or pieces that are sent as they are made."""

    status: HTTPStatus
    body: bytes | AsyncIterator[bytes]
    content_type: str = "text/plain; charset=utf-8"
    headers: Mapping[str, str] = {}


def parse(head: bytes) -> Request:
    """The request whose head, without the blank line, this is. BadRequest."""
    first, *lines = head.split(b"\r\n")
    match = _REQUEST_LINE.fullmatch(first)
    if match is None:
        raise BadRequest(HTTPStatus.BAD_REQUEST, "the request line is not METHOD TARGET HTTP/1.1")
    if len(match[2]) > TARGET_BYTES_MAX:
        raise BadRequest(HTTPStatus(414), f"the target is longer than {TARGET_BYTES_MAX} bytes")
    if len(lines) > HEADERS_MAX:
        raise BadRequest(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"more than {HEADERS_MAX} header lines")
    headers: dict[str, str] = {}
    for line in lines:
        found = _HEADER.fullmatch(line)
        if found is None:
            raise BadRequest(HTTPStatus.BAD_REQUEST, "a header line is not NAME: VALUE")
        name, value = found[1].decode("ascii").lower(), found[2].strip(b" \t").decode("latin-1")
        headers[name] = f"{headers[name]},{value}" if name in headers else value
    if headers.get("content-length", "0").strip() != "0" or "transfer-encoding" in headers:
        raise BadRequest(HTTPStatus(413), "a request has no body here")
    method = match[1].decode("ascii")
    if method not in METHODS:
        raise BadRequest(HTTPStatus.METHOD_NOT_ALLOWED, "only GET and HEAD are served")
    return Request(method, path_of(match[2].decode("ascii")), headers, int(match[3]))


def path_of(target: str) -> str:
    """The path of a target in origin form, or in absolute form as proxies send it."""
    if target.lower().startswith(("http://", "https://")):
        target = "/" + target.partition("//")[2].partition("/")[2]
    return target.partition("?")[0].partition("#")[0]


def head_of(
    response: Response, *, minor: int, keeps_alive: bool, length: int | None, is_compressed: bool = False
) -> bytes:
    """The head of a response. `length` None: the body comes in chunks, or ends with the connection."""
    status = response.status
    lines = [
        f"HTTP/1.1 {status.value} {status.phrase}",
        f"Content-Type: {response.content_type}",
        "Cache-Control: no-store",
        "X-Content-Type-Options: nosniff",
        *(f"{name}: {value}" for name, value in response.headers.items()),
    ]
    if is_compressed:
        lines.append("Content-Encoding: gzip")
    if length is not None:
        lines.append(f"Content-Length: {length}")
    elif minor:
        lines.append("Transfer-Encoding: chunked")
    if not keeps_alive:
        lines.append("Connection: close")
    elif not minor:
        lines.append("Connection: keep-alive")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "replace")


def chunk(data: bytes) -> bytes:
    """One chunk of a body in chunks; b"" ends it."""
    return b"%x\r\n%b\r\n" % (len(data), data)
