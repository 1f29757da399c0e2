"""Pages: which path is answered with what, and to whom. Loop thread."""

import base64
import binascii
from collections.abc import AsyncIterator, Awaitable, Callable
from http import HTTPStatus

import orjson

from firearrow.broker.http.listener import Visitor
from firearrow.broker.http.messages import Request, Response

OPEN_METRICS_TYPE = "application/openmetrics-text"
INDEX = """FireArrow
/metrics  Prometheus and OpenMetrics
/healthz  200 if the event loop turns
/readyz   200 if the broker serves clients, else 503 and why
/status   JSON
"""


WATCHED = ("/metrics", "/status")
"""What only those may see who have logged in, where a login is needed. Probes of machines need none."""
LogIn = Callable[[Visitor, str, str], str | None]


class Pages:
    """`metrics(is_open_metrics)` returns the content type and the text in pieces; `unready()` states why the broker is
    not ready, None if it is; `status()` returns the members of the JSON object. `log_in(visitor, user, password)`
    states why this user may not see them, None if it may; without it everyone may."""

    def __init__(
        self,
        metrics: Callable[[bool], tuple[str, AsyncIterator[bytes]]],
        unready: Callable[[], Awaitable[str | None]],
        status: Callable[[], Awaitable[dict[str, object]]],
        log_in: LogIn | None = None,
    ) -> None:
        self._metrics = metrics
        self._unready = unready
        self._status = status
        self._log_in = log_in

    async def answer(self, request: Request, visitor: Visitor) -> Response:
        path = request.path.rstrip("/")
        if path in WATCHED and self._log_in is not None:
            user, password = credentials(request)
            if (fault := self._log_in(visitor, user, password)) is not None:
                headers = {"WWW-Authenticate": 'Basic realm="FireArrow", charset="UTF-8"'}
                return Response(HTTPStatus.UNAUTHORIZED, f"{fault}\n".encode(), headers=headers)
        if path == "/metrics":
            content_type, pieces = self._metrics(request.accepts("accept", OPEN_METRICS_TYPE))
            return Response(HTTPStatus.OK, pieces, content_type)
        if path == "/healthz":
            return Response(HTTPStatus.OK, b"ok\n")
        if path == "/readyz":
            reason = await self._unready()
            if reason is not None:
                return Response(HTTPStatus.SERVICE_UNAVAILABLE, f"{reason}\n".encode("utf-8", "replace"))
            return Response(HTTPStatus.OK, b"ready\n")
        if path == "/status":
            body = orjson.dumps(await self._status(), option=orjson.OPT_INDENT_2)
            return Response(HTTPStatus.OK, body + b"\n", "application/json")
        if path == "":
            return Response(HTTPStatus.OK, INDEX.encode())
        return Response(HTTPStatus.NOT_FOUND, b"there is no such page; / lists those that there are\n")


def credentials(request: Request) -> tuple[str, str]:
    """User and password of basic authentication (RFC 7617); empty: there are none, or they are malformed."""
    scheme, _, text = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "basic":
        return "", ""
    try:
        user, _, password = base64.b64decode(text.strip(), validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        return "", ""
    return user, password
