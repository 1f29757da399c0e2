"""Pages: which path is answered with what. Loop thread."""

from collections.abc import AsyncIterator, Awaitable, Callable
from http import HTTPStatus

import orjson

from firearrow.broker.http.messages import Request, Response

OPEN_METRICS_TYPE = "application/openmetrics-text"
INDEX = """FireArrow
/metrics  Prometheus and OpenMetrics
/healthz  200 if the event loop turns
/readyz   200 if the broker serves clients, else 503 and why
/status   JSON
"""


class Pages:
    """`metrics(is_open_metrics)` returns the content type and the text in pieces; `unready()` says why the broker is
    not ready, None if it is; `status()` returns the members of the JSON object."""

    def __init__(
        self,
        metrics: Callable[[bool], tuple[str, AsyncIterator[bytes]]],
        unready: Callable[[], Awaitable[str | None]],
        status: Callable[[], Awaitable[dict[str, object]]],
    ) -> None:
        self._metrics = metrics
        self._unready = unready
        self._status = status

    async def answer(self, request: Request) -> Response:
        path = request.path.rstrip("/")
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
