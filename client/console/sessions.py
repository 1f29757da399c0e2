"""Who visits: sessions in cookies, logins with the users of the brokers, and how often a login may fail.

Passwords are the brokers' own: a login is a signed request, and what a visitor may do is decided by the brokers, which
get each request signed with the visitor's keys. Sessions are in memory only. Loop thread.
"""

import asyncio
import contextlib
import hmac
import ipaddress
import re
import secrets
import time
from collections import OrderedDict
from dataclasses import dataclass, field, replace

from firearrow.client.admin_api.admin import Admin
from firearrow.client.base.errors import BrokerError, ClientError, ConfigError, RocketMQError, TransportError
from firearrow.client.cli.contexts import Context
from firearrow.client.console.questions import PageAdmin

SESSIONS_MAX, SESSIONS_OF_USER_MAX = 1000, 20
SESSION_IDLE_S = 8 * 3600.0
FAILURES_S = 60.0
PAIR_MAX, ADDRESS_MAX, NAME_MAX = 5, 20, 200
"""Failed logins within FAILURES_S, before further ones wait: of a name from an address, of an address, of a name. The
last is large: strangers elsewhere must not keep the user out by a few."""
COUNTED_MAX = 4096
TOKEN_BYTES = 32
PREVIEWS_MAX = 50
"""Of a session, that can be confirmed."""
NAME_CHARS_MAX = 255
NO_PERMISSION, SYSTEM_ERROR = 16, 1
OF_RIGHTS = re.compile(r"has no permission|No default permission|topic-no-permission", re.IGNORECASE)
OF_WAITS = re.compile(r"too many failed logins")
OF_LOGINS = re.compile(
    r"username cannot be null|No accessKey is configured|check signature failed|is not found|is disabled|No acl config",
    re.IGNORECASE,
)


class LoginRefused(Exception):
    """The text is for the visitor."""


@dataclass(slots=True)
class Access:
    """What requests of a visitor are made with. `user`: "" without a login."""

    context: Context
    admin: PageAdmin
    user: str = ""


@dataclass(slots=True)
class Session:
    """`secret`: proves that a form came from a page of this session. `previews`: proof → digest of what the preview was
    of, or "" once it was confirmed; oldest first."""

    access: Access
    secret: bytes = field(default_factory=lambda: secrets.token_bytes(TOKEN_BYTES))
    previews: OrderedDict[str, str] = field(default_factory=OrderedDict)
    used_s: float = field(default_factory=time.monotonic)

    def form_token(self) -> str:
        """Another one in each page, so that compressed pages do not show it by their lengths."""
        pad = secrets.token_bytes(TOKEN_BYTES)
        return (pad + bytes(a ^ b for a, b in zip(pad, self.secret, strict=True))).hex()

    def made(self, token: str) -> bool:
        try:
            raw = bytes.fromhex(token)
        except ValueError:
            return False
        if len(raw) != 2 * TOKEN_BYTES:
            return False
        pad, masked = raw[:TOKEN_BYTES], raw[TOKEN_BYTES:]
        return hmac.compare_digest(bytes(a ^ b for a, b in zip(pad, masked, strict=True)), self.secret)

    def proof(self, text: str) -> str:
        """That this session has seen the preview of this text, for one confirmation."""
        proof = secrets.token_hex(TOKEN_BYTES)
        self.previews[proof] = self._digest(text)
        if len(self.previews) > PREVIEWS_MAX:
            self.previews.popitem(last=False)
        return proof

    def confirm(self, text: str, proof: str) -> None:
        """Use up the proof. ConfigError: it is of another text, or was used before, as by a second click."""
        seen = self.previews.get(proof)
        if seen == "":
            raise ConfigError(
                "it was confirmed before, and is done once: look at the preview for another time"
            )
        if seen is None or not hmac.compare_digest(seen, self._digest(text)):
            raise ConfigError("the values are not those of the preview: look at it again")
        self.previews[proof] = ""

    def _digest(self, text: str) -> str:
        return hmac.new(self.secret, text.encode(), "sha256").hexdigest()


class Sessions:
    """By the token of the cookie; the one that was not used for longest is dropped first."""

    def __init__(self) -> None:
        self._by_token: OrderedDict[str, Session] = OrderedDict()

    def __len__(self) -> int:
        return len(self._by_token)

    def find(self, token: str) -> Session | None:
        session = self._by_token.get(token)
        if session is None:
            return None
        session.used_s = time.monotonic()
        self._by_token.move_to_end(token)
        return session

    async def end_unused(self) -> None:
        """End those that were not used for SESSION_IDLE_S, with their connections."""
        least_s = time.monotonic() - SESSION_IDLE_S
        while self._by_token and next(iter(self._by_token.values())).used_s < least_s:
            await _leave(self._by_token.popitem(last=False)[1])

    async def open(self, access: Access) -> tuple[str, Session]:
        """Of a user who has too many, and then of all, the one that was not used for longest ends."""
        token, session = secrets.token_urlsafe(TOKEN_BYTES), Session(access)
        self._by_token[token] = session
        if access.user:
            own = [each for each, found in self._by_token.items() if found.access.user == access.user]
            for oldest in own[:-SESSIONS_OF_USER_MAX]:
                await self.end(oldest)
        while len(self._by_token) > SESSIONS_MAX:
            _, dropped = self._by_token.popitem(last=False)
            await _leave(dropped)
        return token, session

    async def end(self, token: str) -> None:
        if (session := self._by_token.pop(token, None)) is not None:
            await _leave(session)

    async def close(self) -> None:
        while self._by_token:
            await _leave(self._by_token.popitem()[1])


async def _leave(session: Session) -> None:
    if session.access.user:  # an open console has one connection for all
        await session.access.admin.close()


class Failures:
    """Failed logins by address, by name, and by both."""

    def __init__(self) -> None:
        self._times: OrderedDict[tuple[str, str], list[float]] = OrderedDict()
        """Address and name, either of which may be "" → when, oldest first."""

    def wait_s(self, address: str, user: str) -> float:
        """How long this name must wait at this address before the next try; 0: it need not."""
        now, longest = time.monotonic(), 0.0
        for key, most in _counted(address, user):
            recent = [at for at in self._times.get(key, ()) if now - at < FAILURES_S]
            if len(recent) >= most:
                longest = max(longest, FAILURES_S - (now - recent[-most]))
        return longest

    def failed(self, address: str, user: str) -> None:
        for key, most in _counted(address, user):
            times = self._times.setdefault(key, [])
            times.append(time.monotonic())
            del times[:-most]
            self._times.move_to_end(key)
        while len(self._times) > COUNTED_MAX:
            self._times.popitem(last=False)

    def succeeded(self, address: str, user: str) -> None:
        """Forgets this try, and all of this name at this address."""
        self.undecided(address, user)
        (pair, _), *_ = _counted(address, user)
        self._times.pop(pair, None)

    def undecided(self, address: str, user: str) -> None:
        """Forgets this try: no broker has decided on it."""
        for key, _ in _counted(address, user):
            if times := self._times.get(key):
                times.pop()


def _counted(address: str, user: str) -> tuple[tuple[tuple[str, str], int], ...]:
    """Keys with their limits. Who has an IPv6 address has its whole /64."""
    with contextlib.suppress(ValueError):
        if ipaddress.ip_address(address).version == 6:
            address = str(ipaddress.ip_network((address.partition("%")[0], 64), strict=False))
    return ((address, user), PAIR_MAX), ((address, ""), ADDRESS_MAX), (("", user), NAME_MAX)


class Gate:
    """The brokers' users at the door. `context`: the name servers, without keys. `has_users`: None until known."""

    def __init__(self, context: Context, timeout_s: float) -> None:
        self._context = replace(context, access_key="", secret_key="")
        self._timeout_s = timeout_s
        self._open: asyncio.Task[Access] | None = None
        self.has_users: bool | None = None
        self.failures = Failures()

    async def look(self) -> None:
        """Ask without keys whether the brokers have users. TransportError, ClientError: they do not answer."""
        self.has_users = not await may_watch(await self.unsigned())

    async def unsigned(self) -> Access:
        """Without keys; one for all, also for those who come while it is made."""
        made = self._open
        if made is None or (made.done() and (made.cancelled() or made.exception() is not None)):
            made = self._open = asyncio.create_task(self._made(self._context))
        return await asyncio.shield(made)

    async def _made(self, context: Context, user: str = "") -> Access:
        admin = await PageAdmin(client=context.client_options(), timeout_s=self._timeout_s).start()
        return Access(context, admin, user)

    async def log_in(self, user: str, password: str, address: str) -> Access:
        """LoginRefused; TransportError, ClientError: the brokers do not answer."""
        if (wait_s := self.failures.wait_s(address, user)) > 0:
            raise LoginRefused(f"too many failed logins: try again in {wait_s:.0f} s")
        if not user or not password or len(user) > NAME_CHARS_MAX or len(password) > NAME_CHARS_MAX:
            raise LoginRefused("give the name and the password of a user of the broker")
        # until the answer is there: many tries at once are limited as well
        self.failures.failed(address, user)
        try:
            access = await self._made(replace(self._context, access_key=user, secret_key=password), user)
            try:
                await self._try(access.admin, user)
                await self.look()
                if not self.has_users:  # they answer everybody, whatever name and password a request has
                    raise LoginRefused("the brokers have no users: sign-in is not possible")
            except BaseException:
                await access.admin.close()
                raise
        except (ClientError, OSError):
            self.failures.undecided(address, user)
            raise
        self.failures.succeeded(address, user)
        return access

    async def _try(self, admin: Admin, user: str) -> None:
        """A user who may not ask this has logged in all the same: brokers check the signature first."""
        try:
            for broker in await admin.calls.masters():
                await admin.broker_runtime(broker)
        except BrokerError as error:
            if (fault := login_fault(error, user)) is not None:
                raise LoginRefused(fault) from None
            if not OF_RIGHTS.search(error.remark):
                raise

    async def has_ended(self, access: Access, error: RocketMQError) -> bool:
        """Whether this error came because the user was deleted or disabled, or has another password. Brokers are asked,
        because a name may read like such an error."""
        if not access.user or not isinstance(error, BrokerError) or not is_refusal(error):
            return False
        try:
            await self._try(access.admin, access.user)
        except LoginRefused:
            return True
        except (ClientError, OSError):
            pass
        return False

    async def close(self) -> None:
        if self._open is not None:
            with contextlib.suppress(RocketMQError, OSError):
                await (await self._open).admin.close()


def login_fault(error: BrokerError, user: str) -> str | None:
    """Why the login is refused, if the broker refused the login; None: it refused something else."""
    remark = error.remark.replace(f"User:{user}", "")  # a name may be such a sentence
    if OF_LOGINS.search(remark):
        return "the name or the password is wrong"
    if OF_RIGHTS.search(remark) or OF_WAITS.search(remark) or not is_refusal(error):
        return None
    return "the broker refuses this user"


async def may_watch(access: Access) -> bool:
    """Whether all brokers let this user see how they are. TransportError, ClientError: one does not answer."""
    try:
        for broker in await access.admin.calls.masters():
            await access.admin.broker_runtime(broker)
    except BrokerError as error:
        if not is_refusal(error):
            raise
        return False
    return True


def is_refusal(error: ClientError) -> bool:
    """Whether a broker refused the request for its login or for a right."""
    if isinstance(error, TransportError) or not isinstance(error, BrokerError):
        return False
    known = OF_LOGINS.search(error.remark) or OF_RIGHTS.search(error.remark)
    return error.code == NO_PERMISSION or (error.code == SYSTEM_ERROR and known is not None)
