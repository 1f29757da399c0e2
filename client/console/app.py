"""The console as an ASGI application: what every request passes, and the errors that pages end with.

The guard adds the headers of security, bounds bodies, finds the session and refuses forms that did not come from a page
of this session. Loop thread.
"""

import asyncio
import logging
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import quote, urlsplit

from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from firearrow.client.admin_api.admin import Admin
from firearrow.client.admin_api.extensions import Extensions
from firearrow.client.base.errors import (
    BrokerError,
    ClientError,
    ConfigError,
    NoNameServer,
    NoRoute,
    OnlyFireArrow,
    RocketMQError,
    TransportError,
)
from firearrow.client.cli.messages.body_formats import BodyFormat
from firearrow.client.console.forms import BODY_BYTES_MAX, LOGIN_BYTES_MAX, Bodies, TooLarge, form_of
from firearrow.client.console.jobs import Jobs
from firearrow.client.console.questions import Kept, Question, ask
from firearrow.client.console.rendering import FOLDER, address, environment, shortened
from firearrow.client.console.sessions import Access, Gate, Session, Sessions, is_refusal

log = logging.getLogger("firearrow.console")

PAGE_S = 90.0
"""Until a page is made, or its first part."""
ERROR_CHARS_MAX = 2000
GOAL_CHARS_MAX = 2000
"""Of the address that a login leads back to."""
KIND_S, KIND_WAIT_S = 60.0, 2.0
"""How often brokers are asked whether they are Apache's, and for how long a page waits for the answer."""
TOKEN_FIELD = "csrf"
CSP = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {
    "Content-Security-Policy": CSP,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",  # without any, browsers send forms with the origin `null`
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
PUBLIC = ("/static/", "/sign-in")
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
STATIC_AGE_S = 3600
NAV = (
    ("Home", "/"),
    ("Topics", "/topics"),
    ("Groups", "/groups"),
    ("Dead letters", "/dead-letters"),
    ("Waiting", "/waiting"),
    ("Transactions", "/transactions"),
    ("In order", "/ordered"),
    ("POP in flight", "/pop"),
    ("Clients", "/clients"),
    ("Users", "/users"),
    ("Config", "/config"),
    ("Jobs", "/jobs"),
    ("Log", "/log"),
    ("Doctor", "/doctor"),
)
SHARED = (("config", "get"), ("group", "list"), ("status", ""), ("top", ""), ("topic", "list"))
"""Questions about all that a cluster has, whose answers several pages show within a moment."""
ONLY_FIREARROW = ("/transactions", "/ordered", "/pop", "/log")
"""Pages that Apache's brokers do not answer."""


@dataclass(slots=True)
class Console:
    """`read_only`: no actions. `cookie`: its name. `secure`: it is served by TLS. `used_s`: when a visitor last asked,
    `running`: requests that are answered now."""

    gate: Gate
    read_only: bool = False
    mask_bodies: bool = False
    cookie: str = "firearrow_console"
    secure: bool = False
    is_loopback: bool = True
    sessions: Sessions = field(default_factory=Sessions)
    used_s: float = field(default_factory=time.monotonic)
    running: int = 0
    templates: Any = field(default_factory=environment)
    is_apache: bool = False
    """No broker is FireArrow's: what only FireArrow's answer is greyed out."""
    kind_until_s: float = 0.0
    bodies: Bodies = field(default_factory=Bodies)
    doctors: dict[str, tuple[float, Kept]] = field(default_factory=dict)
    """User → when the doctor last looked for it, and what it found."""
    jobs: Jobs = field(default_factory=Jobs)
    job_folders: Sequence[str] = ()
    """Where Spark's jobs run."""
    formats: Mapping[str, BodyFormat] = field(default_factory=dict)
    """Topic → of its bodies."""

    async def learn_kind(self, admin: Admin) -> None:
        """Whether all brokers are Apache's; what is known counts while they do not answer."""
        now = time.monotonic()
        if now < self.kind_until_s:
            return
        self.kind_until_s = now + KIND_S
        try:
            async with asyncio.timeout(KIND_WAIT_S):
                masters = await admin.calls.masters()
                asked = (Extensions(admin).log(name, limit=1) for name in masters)
                answers = await asyncio.gather(*asked, return_exceptions=True)
        except (RocketMQError, OSError, TimeoutError):
            return
        self.is_apache = bool(answers) and all(isinstance(each, OnlyFireArrow) for each in answers)

    async def close(self) -> None:
        await self.jobs.close()
        await self.sessions.close()
        await self.gate.close()


@dataclass(slots=True)
class View:
    """One request: who asks, and what is asked."""

    console: Console
    request: Request
    session: Session | None

    @property
    def access(self) -> Access:
        assert self.session is not None
        return self.session.access

    def get(self, name: str, default: str = "") -> str:
        """A value of the query, without spaces around it."""
        return str(self.request.query_params.get(name, default)).strip()

    def part(self, name: str) -> str:
        """A part of the path."""
        return str(self.request.path_params[name])

    @property
    def here(self) -> str:
        return path_of(self.request)

    async def ask(self, command: str, verb: str = "", *words: str, **options: Any) -> Kept:  # noqa: ANN401 (Value)
        """Options by their names, with _ for -."""
        named = {f"--{name.strip('_').replace('_', '-')}": value for name, value in options.items()}
        question, access = Question(command, verb, named, words), self.access
        if (command, verb) not in SHARED:
            return await ask(question, access.context, access.admin)
        key = (command, *question.arguments())
        return await access.admin.shared.once(key, partial(ask, question, access.context, access.admin))

    def page(self, template: str, status: int = 200, **values: object) -> HTMLResponse:
        return HTMLResponse(self.html(template, **values), status)

    def html(self, template: str, **values: object) -> str:
        rendered: str = self.console.templates.get_template(template).render(self.values() | values)
        return rendered

    def values(self) -> dict[str, object]:
        """What every template has."""
        session, given = self.session, dict(self.request.query_params)
        here = self.here
        return {
            "view": self,
            "nav": NAV,
            "is_apache": self.console.is_apache,
            "only_firearrow": ONLY_FIREARROW,
            "here": here,
            "still": address(here, **given | {"live": ""}),
            "lively": address(here, **given | {"live": "1"}),
            "query": given,
            "user": "" if session is None else session.access.user,
            "token": "" if session is None else session.form_token(),
            "may_act": session is not None and not self.console.read_only,
            "read_only": self.console.read_only,
            "is_live": self.get("live") == "1",
        }


Handler = Callable[[View], Awaitable[Response]]


def page(handler: Handler) -> Callable[[Request], Awaitable[Response]]:
    """A route's endpoint: errors become pages."""

    async def endpoint(request: Request) -> Response:
        console: Console = request.app.state.console
        view = View(console, request, request.scope.get("session_of_console"))
        try:
            async with asyncio.timeout(PAGE_S):
                if view.session is not None:
                    await console.learn_kind(view.access.admin)
                return await handler(view)
        except TimeoutError:
            return error_page(
                view, TransportError(f"the brokers have not answered all within {PAGE_S:.0f} s")
            )
        except RocketMQError as error:
            if view.session is not None and await console.gate.has_ended(view.access, error):
                await console.sessions.end(request.cookies.get(console.cookie, ""))
                return RedirectResponse(_sign_in_address(request), 303)
            return error_page(view, error)
        except Exception:
            log.exception("the page %s failed", path_of(request))
            text = "The console's log has the reason."
            return view.page(
                "error.html", 500, title="This page has failed", text=text, advice="", sign_in=""
            )

    return endpoint


def path_of(request: Request) -> str:
    """As a link has it: `request.url` would take a `%`, `?` or `#` of a name for its own."""
    return quote(str(request.scope["path"]))


def _sign_in_address(request: Request) -> str:
    """It leads back to the page; a form is not sent again."""
    goal = address(path_of(request), **dict(request.query_params))
    goal = goal if len(goal) <= GOAL_CHARS_MAX else path_of(request)
    return address("/sign-in", next=goal if request.method == "GET" else "")


def error_page(view: View, error: RocketMQError) -> Response:
    status, title, advice = explained(error)
    if isinstance(error, BrokerError) and is_refusal(error):
        view.console.gate.has_users = None  # they may have users now
    needs_login = status == 403 and view.session is not None and not view.access.user
    return view.page(
        "error.html",
        status,
        title=title,
        text=shortened(str(error), ERROR_CHARS_MAX),
        advice=advice,
        sign_in=_sign_in_address(view.request) if needs_login else "",
    )


async def unknown_page(request: Request, error: Exception) -> Response:
    """Of an address that no page has, or that takes no form."""
    assert isinstance(error, HTTPException)
    view = View(request.app.state.console, request, request.scope.get("session_of_console"))
    text = f"{shortened(path_of(request))}: {error.detail}"
    return view.page(
        "error.html", error.status_code, title="There is no such page", text=text, advice="", sign_in=""
    )


def explained(error: RocketMQError) -> tuple[int, str, str]:
    """Status, title, and what to do."""
    if isinstance(error, OnlyFireArrow):
        return 501, "Only FireArrow's brokers answer this", "Apache's brokers do not report it."
    if isinstance(error, TooLarge):
        return 413, "The form is too large", "Send less at once."
    if isinstance(error, ConfigError):
        return 400, "This cannot be asked", "Change the values and try again."
    if isinstance(error, TransportError | NoNameServer):
        return 502, "The brokers cannot be reached", "Check that they run; this page can be loaded again."
    if isinstance(error, NoRoute):
        return 404, "There is no such topic", "Its name may be different, or no broker has it."
    if isinstance(error, BrokerError) and is_refusal(error):
        return 403, "You may not see this", "Ask for the right, or sign in as another user."
    if isinstance(error, BrokerError):
        return 502, "A broker refused the request", ""
    return 404 if isinstance(error, ClientError) else 500, "Nothing was found", ""


class Guard:
    """The middleware that every request passes."""

    def __init__(self, app: ASGIApp, console: Console) -> None:
        self._app = app
        self._console = console

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        console = self._console
        console.used_s = time.monotonic()
        console.running += 1

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                is_static = scope["path"].startswith("/static/")
                headers["Cache-Control"] = f"max-age={STATIC_AGE_S}" if is_static else "no-store"
            await send(message)

        try:
            answer = await self._refusal(scope)
            most = LOGIN_BYTES_MAX if scope["path"] == "/sign-in" else BODY_BYTES_MAX
            with console.bodies.bounded(receive, most) as bounded:
                await (answer or self._app)(scope, bounded, guarded)
        finally:
            console.running -= 1
            console.used_s = time.monotonic()

    async def _refusal(self, scope: Scope) -> Response | None:
        """What a request gets that may not pass; None: it passes, with its session."""
        console, request, path = self._console, Request(scope), scope["path"]
        if request.method not in ("GET", "HEAD", "POST"):
            return Response("Method not allowed", 405)
        if path.startswith("/static/"):
            return None
        if _is_part_of_another_site(request):
            return Response("This page cannot be a part of another site's.", 403)
        if request.method == "POST" and not _same_origin(request):
            return Response("The form was sent by another site.", 403)
        await console.sessions.end_unused()
        session = console.sessions.find(request.cookies.get(console.cookie, ""))
        cookie, has_login = "", session is not None and session.access.user != ""
        if console.gate.has_users is None and not has_login:
            try:
                await console.gate.look()
            except (ClientError, OSError) as error:
                log.debug("the brokers do not answer: %s", error)
        is_open = not console.gate.has_users and not has_login
        if is_open and not self._is_own_host(request.headers.get("host", "")):
            return Response("This console is not served under that name.", 421)
        may_be_open = not console.gate.has_users and console.is_loopback
        if session is not None and console.gate.has_users and not session.access.user:
            session = None
        if session is None and may_be_open:
            cookie, session = await console.sessions.open(await console.gate.unsigned())
        scope["session_of_console"] = session
        if cookie:
            scope["new_cookie_of_console"] = cookie
        if session is None and not path.startswith(PUBLIC):
            return RedirectResponse(_sign_in_address(request), 303)
        return None

    def _is_own_host(self, host: str) -> bool:
        """Without a login only by names of this machine: another site's name could be made to lead here."""
        if not self._console.is_loopback:
            return True
        name = host[1:].partition("]")[0] if host.startswith("[") else re.sub(r":\d+$", "", host)
        return name.lower() in LOOPBACK_NAMES


class Cookies:
    """Gives a new session its cookie."""

    def __init__(self, app: ASGIApp, console: Console) -> None:
        self._app = app
        self._console = console

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_cookie(message: Message) -> None:
            if message["type"] == "http.response.start" and "new_cookie_of_console" in scope:
                value = cookie_text(self._console, scope["new_cookie_of_console"])
                MutableHeaders(scope=message).append("Set-Cookie", value)
            await send(message)

        await self._app(scope, receive, with_cookie)


def cookie_text(console: Console, token: str) -> str:
    """ "": the browser is to forget it."""
    age = "" if token else "; Max-Age=0"
    return f"{console.cookie}={token}; Path=/; HttpOnly; SameSite=Strict{age}{'; Secure' if console.secure else ''}"


def _is_part_of_another_site(request: Request) -> bool:
    """Such as its image or script, which would open sessions and ask the brokers. A link is none."""
    site, mode = (request.headers.get(f"sec-fetch-{name}", "") for name in ("site", "mode"))
    return site in ("cross-site", "same-site") and mode not in ("", "navigate")


def _same_origin(request: Request) -> bool:
    """By what browsers send; clients that send neither have no cookies of others. Sec-Fetch-Site first: a proxy may
    have given the request another Host."""
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        return site in ("same-origin", "none")
    origin = request.headers.get("origin")
    return origin is None or urlsplit(origin).netloc == request.headers.get("host", "")


async def checked_form(view: View) -> Mapping[str, str]:
    """The form, which comes from a page of this session. ConfigError: it does not."""
    form = await form_of(view.request)
    if view.session is None or not view.session.made(form.get(TOKEN_FIELD, "")):
        raise ConfigError("this page is too old, or another site sent the form: load the page again")
    return form


def application(console: Console, routes: Mapping[str, Handler], forms: Mapping[str, Handler]) -> Starlette:
    """`routes`: path → page; `forms`: path → what a sent form does."""
    made = Starlette(
        routes=[
            *(Route(path, page(handler), methods=["GET"]) for path, handler in routes.items()),
            *(Route(path, page(handler), methods=["POST"]) for path, handler in forms.items()),
            Mount("/static", StaticFiles(directory=FOLDER / "static")),
        ],
        middleware=[
            Middleware(Guard, console=console),
            Middleware(Cookies, console=console),
            Middleware(GZipMiddleware, minimum_size=1024, compresslevel=5),
        ],
        exception_handlers={HTTPException: unknown_page},
    )
    made.state.console = console
    return made
