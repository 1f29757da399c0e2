"""Who visits: sessions in cookies, logins with the users of the brokers, and how often a login may fail.

Passwords are the brokers' own: a login is a signed request, and what a visitor may do is decided by the brokers, which
get each request signed with the visitor's keys. Sessions are in memory only. Loop thread.
"""

import hmac
import re
import secrets
import time
from collections import OrderedDict
from dataclasses import dataclass, field, replace

from firearrow.client.admin_api.admin import Admin
from firearrow.client.base.errors import BrokerError, ClientError, TransportError
from firearrow.client.cli.contexts import Context

SESSIONS_MAX = 1000
SESSION_IDLE_S = 8 * 3600.0
FAILURES_MAX, FAILURES_S = 5, 60.0
"""Failed logins of an address or of a user name, before further ones wait."""
COUNTED_MAX = 4096
TOKEN_BYTES = 32
NAME_CHARS_MAX = 255
NO_PERMISSION, SYSTEM_ERROR = 16, 1
OF_RIGHTS = re.compile(r"has no permission|No default permission|topic-no-permission", re.IGNORECASE)
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
    admin: Admin
    user: str = ""


@dataclass(slots=True)
class Session:
    """`secret`: proves that a form came from a page of this session."""

    access: Access
    secret: bytes = field(default_factory=lambda: secrets.token_bytes(TOKEN_BYTES))
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
        """That this session has seen the preview of this text."""
        return hmac.new(self.secret, text.encode(), "sha256").hexdigest()

    def proves(self, text: str, proof: str) -> bool:
        return hmac.compare_digest(self.proof(text).encode(), proof.encode())


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
        now = time.monotonic()
        if now - session.used_s > SESSION_IDLE_S:
            del self._by_token[token]
            return None
        session.used_s = now
        self._by_token.move_to_end(token)
        return session

    async def open(self, access: Access) -> tuple[str, Session]:
        token, session = secrets.token_urlsafe(TOKEN_BYTES), Session(access)
        self._by_token[token] = session
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
    """Failed logins by address and by name. A name's count keeps others out of guessing from many addresses."""

    def __init__(self) -> None:
        self._times: OrderedDict[str, list[float]] = OrderedDict()

    def wait_s(self, *keys: str) -> float:
        """How long these must wait before the next try; 0: they need not."""
        now, longest = time.monotonic(), 0.0
        for key in keys:
            recent = [at for at in self._times.get(key, ()) if now - at < FAILURES_S]
            if len(recent) >= FAILURES_MAX:
                longest = max(longest, FAILURES_S - (now - recent[-FAILURES_MAX]))
        return longest

    def failed(self, *keys: str) -> None:
        for key in keys:
            times = self._times.setdefault(key, [])
            times.append(time.monotonic())
            del times[:-FAILURES_MAX]
            self._times.move_to_end(key)
        while len(self._times) > COUNTED_MAX:
            self._times.popitem(last=False)

    def succeeded(self, *keys: str) -> None:
        for key in keys:
            self._times.pop(key, None)


class Gate:
    """The brokers' users at the door. `context`: the name servers, without keys. `has_users`: None until known."""

    def __init__(self, context: Context, timeout_s: float) -> None:
        self._context = replace(context, access_key="", secret_key="")
        self._timeout_s = timeout_s
        self._open: Access | None = None
        self.has_users: bool | None = None
        self.failures = Failures()

    async def look(self) -> None:
        """Ask without keys whether the brokers have users. TransportError, ClientError: they do not answer."""
        try:
            admin = (await self.unsigned()).admin
            for broker in await admin.calls.masters():
                await admin.broker_runtime(broker)
        except BrokerError as error:
            if not is_refusal(error):
                raise
            self.has_users = True
        else:
            self.has_users = False

    async def unsigned(self) -> Access:
        """Without keys; one for all."""
        if self._open is None:
            admin = await Admin(client=self._context.client_options(), timeout_s=self._timeout_s).start()
            self._open = Access(self._context, admin)
        return self._open

    async def log_in(self, user: str, password: str, address: str) -> Access:
        """LoginRefused; TransportError, ClientError: the brokers do not answer."""
        keys = (f"address {address}", f"user {user}")
        if (wait_s := self.failures.wait_s(*keys)) > 0:
            raise LoginRefused(f"too many failed logins: try again in {wait_s:.0f} s")
        if not user or not password or len(user) > NAME_CHARS_MAX or len(password) > NAME_CHARS_MAX:
            raise LoginRefused("give the name and the password of a user of the broker")
        self.failures.failed(*keys)  # until the answer is there: many tries at once are limited as well
        context = replace(self._context, access_key=user, secret_key=password)
        admin = await Admin(client=context.client_options(), timeout_s=self._timeout_s).start()
        try:
            await self._try(admin, user)
        except BaseException:
            await admin.close()
            raise
        self.failures.succeeded(*keys)
        return Access(context, admin, user)

    async def _try(self, admin: Admin, user: str) -> None:
        """A user who may not ask this has logged in all the same: brokers check the signature first."""
        try:
            for broker in await admin.calls.masters():
                await admin.broker_runtime(broker)
        except BrokerError as error:
            remark = error.remark.replace(user, "")  # a name may be such a sentence
            if OF_RIGHTS.search(remark) and not OF_LOGINS.search(remark):
                return
            if is_refusal(error):
                raise LoginRefused("the name or the password is wrong") from None
            raise

    async def close(self) -> None:
        if self._open is not None:
            await self._open.admin.close()


def is_refusal(error: ClientError) -> bool:
    """Whether a broker refused the request for its login or for a right."""
    if isinstance(error, TransportError) or not isinstance(error, BrokerError):
        return False
    known = OF_LOGINS.search(error.remark) or OF_RIGHTS.search(error.remark)
    return error.code == NO_PERMISSION or (error.code == SYSTEM_ERROR and known is not None)
