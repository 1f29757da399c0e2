"""AccessControl: lets requests through, or refuses them, before they reach their handlers. Loop thread.

First who sent it (authentication), then whether that user may do it (authorization). Refusals have Apache's codes and
remarks. The rights of users are kept until users or rules change.
"""

from collections.abc import Callable
from dataclasses import dataclass
from hmac import compare_digest
from itertools import chain

from firearrow._native.protocol.access_model import Action, Address, Resource, User, address_of
from firearrow._native.protocol.policy_decision import Need, Rights, refusal_text
from firearrow._native.wire.codes import ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.auth import signatures
from firearrow.broker.auth.audit_log import AuditLog, audit_refusal, ip_of
from firearrow.broker.auth.bodies import TEXT_CHARS_MAX
from firearrow.broker.auth.body_rights import topic_need
from firearrow.broker.auth.failed_logins import TOO_MANY, FailedLogins, Watcher
from firearrow.broker.auth.request_rights import Facts, needs_of
from firearrow.broker.auth.tables import AclTable, UserTable
from firearrow.broker.base.errors import Refusal
from firearrow.broker.base.peer import Peer, ip_text

ENTRIES_KEPT_MAX = 50_000
"""Policy entries, and addresses of users, whose rights are kept; then all are forgotten."""
NO_USER = "username cannot be null."
WRONG_SIGNATURE = "check signature failed."
WRONG_PASSWORD = "wrong user or password"


@dataclass(frozen=True, slots=True)
class AccessSettings:
    """`whitelist`: request codes that need no login; `open_codes`: that need no right. `stateful_s`: a connection's
    login holds so long; 0: each request is checked."""

    authorization: bool
    whitelist: frozenset[int] = frozenset()
    open_codes: frozenset[int] = frozenset()
    stateful_s: float = 0.0


class AccessControl:
    """`now()`: monotonic time in s. `logged_in(peer, user, until)`: a request of the user was let through."""

    def __init__(
        self,
        settings: AccessSettings,
        users: UserTable,
        acls: AclTable,
        facts: Facts,
        failed: FailedLogins,
        audit: AuditLog | None,
        now: Callable[[], float],
        logged_in: Callable[[Peer, User, float], None] = lambda peer, user, until: None,
    ) -> None:
        self._settings = settings
        self._users = users
        self._acls = acls
        self._facts = facts
        self._failed = failed
        self._audit = audit
        self._now = now
        self._report_login = logged_in
        self._rights: dict[tuple[str, str], Rights] = {}
        """By user and address."""
        self._shared_rights: dict[tuple[str, bytes], Rights] = {}
        """By user and, for each entry that names source addresses, whether it holds."""
        self._entries_kept = 0
        self._logged_in: dict[Peer, dict[str, float]] = {}

    def forget(self) -> None:
        """Users or rules changed."""
        self._forget_rights()
        for logins in self._logged_in.values():
            logins.clear()

    def check(self, request: RemotingCommand, peer: Peer, is_served: bool) -> None:
        """Refusal: the request is refused. `is_served`: it has a handler; otherwise there is nothing to
        protect, and the answer states that it is not supported."""
        user = None
        try:
            needs_right = is_served and self._needs_right(request.code)
            if request.code not in self._settings.whitelist:
                user = self._authenticated(request, peer)
            elif needs_right and request.ext.get(signatures.ACCESS_KEY):
                user = self._authenticated(request, peer)  # a wrong password counts here as well
            if user is not None:
                request.user, request.secret = user.name, user.password
            if needs_right:
                self._authorize(request, user, peer)
        except Refusal as refusal:
            audit_refusal(self._audit, request, peer, refusal)
            raise

    def check_held(self, request: RemotingCommand, peer: Peer) -> None:
        """Refusal: a request that was let through, and is held since, may not be answered any more. No login is
        counted, neither as good nor as failed."""
        name = request.ext.get(signatures.ACCESS_KEY, "")
        user = self._users.get(name)
        try:
            fault = self._held_fault(request, user)
            if fault is not None and request.code not in self._settings.whitelist:
                raise _failed_login(fault, name)
            if self._needs_right(request.code):
                self._authorize(request, user if fault is None else None, peer)
        except Refusal as refusal:
            audit_refusal(self._audit, request, peer, refusal)
            raise

    def is_super(self, request: RemotingCommand) -> bool:
        """Whether a Super user signed the request, which was let through: of a whitelist's codes, that is not known."""
        user = self._users.get(request.ext.get(signatures.ACCESS_KEY, ""))
        return user is not None and user.is_super and self._login_fault(request, user) is None

    # ---- authentication ----

    def _authenticated(self, request: RemotingCommand, peer: Peer) -> User:
        name = request.ext.get(signatures.ACCESS_KEY, "")
        address = ip_of(peer)
        if not name:
            self._failed.note(address, NO_USER)
            raise Refusal(ResponseCode.NO_PERMISSION, NO_USER)
        user = self._users.get(name)
        until = self._logged_in.get(peer, {}).get(name)
        if until is None:
            self._wait_for(address, name, peer)
        elif user is not None and until > self._now() and user.is_enabled:
            return user
        fault = self._login_fault(request, user)
        if fault is not None:
            self._logged_in.get(peer, {}).pop(name, None)
            delay_s = self._failed.failed(address, fault, name, peer)
            raise _failed_login(fault, name, delay_s)
        assert user is not None
        self._note_login(peer, user)
        return user

    def watcher_fault(self, watcher: Watcher, name: str, password: str) -> str | None:
        """Why who sends this password may not watch the broker by HTTP, which needs Cluster Get; None: they may."""
        address = ip_text(watcher.host)
        if not name:
            return "log in as a user with Cluster Get"
        if (wait_s := self._failed.wait_s(address, name, watcher)) > 0:
            return TOO_MANY.format(address, wait_s)
        user = self._users.get(name)
        if (
            user is None
            or not user.is_enabled
            or not compare_digest(user.password.encode(), password.encode())
        ):
            self._failed.failed(address, WRONG_PASSWORD, name, watcher)
            return WRONG_PASSWORD
        self._failed.succeeded(address, name)
        if not self.allows(name, [Need(Resource.cluster(self._facts.cluster), Action.GET)], address):
            return f"user {name[:TEXT_CHARS_MAX]} has no Cluster Get"
        return None

    def _login_fault(self, request: RemotingCommand, user: User | None) -> str | None:
        if user is None:
            return "is not found."
        if not user.is_enabled:
            return "is disabled."
        return None if signatures.is_signed(request, user.password) else WRONG_SIGNATURE

    def _held_fault(self, request: RemotingCommand, user: User | None) -> str | None:
        """As `_login_fault`, of a request that may have lost its body, and with it what was signed."""
        is_verified = user is not None and request.secret == user.password and user.is_enabled
        return None if is_verified else self._login_fault(request, user)

    def _wait_for(self, address: str, user: str, peer: Peer) -> None:
        """Refusal: too many failed logins from the address."""
        wait_s = self._failed.wait_s(address, user, peer)
        if wait_s > 0:
            raise Refusal(ResponseCode.NO_PERMISSION, TOO_MANY.format(address, wait_s), passes=True)

    def _note_login(self, peer: Peer, user: User) -> None:
        logins = self._logged_in.get(peer)
        if logins is None:
            if peer.closed:
                return
            logins = self._logged_in[peer] = {}
            peer.on_close(self._closed)
        if self._settings.stateful_s or user.name not in logins:
            until = self._now() + self._settings.stateful_s if self._settings.stateful_s else 0.0
            self._report_login(peer, user, until)
            self._failed.succeeded(ip_of(peer), user.name)
            logins[user.name] = until

    def _closed(self, peer: Peer) -> None:
        self._logged_in.pop(peer, None)

    # ---- authorization ----

    def _needs_right(self, code: int) -> bool:
        return self._settings.authorization and code not in self._settings.open_codes

    def _authorize(self, request: RemotingCommand, user: User | None, peer: Peer) -> None:
        if user is None:
            raise Refusal(ResponseCode.NO_PERMISSION, NO_USER)
        if user.is_super:
            return
        address = ip_of(peer)
        rights = self._rights_of(user.name, address)
        try:
            for need in needs_of(request, self._facts):
                reason = rights.reason(need)
                if reason is not None:
                    raise Refusal(ResponseCode.NO_PERMISSION, refusal_text(user.name, need, address, reason))
        except ValueError as error:
            raise Refusal(ResponseCode.SYSTEM_ERROR, str(error)) from None

    def allows(self, user: str, needs: list[Need], address: str) -> bool:
        """Whether a user that has logged in may do all of this."""
        known = self._users.get(user)
        if known is None or not known.is_enabled:
            return False
        if known.is_super or not self._settings.authorization:
            return True
        rights = self._rights_of(user, address)
        return all(rights.reason(need) is None for need in needs)

    def may_send(self, user: str | None, topic: str, peer: Peer) -> bool:
        """Whether who announced a producer may send to the topic; None: the whitelist let its heartbeat through."""
        return user is None or self.allows(user, [topic_need(topic, Action.PUB)], ip_of(peer))

    def _rights_of(self, user: str, address: str) -> Rights:
        rights = self._rights.get((user, address))
        if rights is None:
            if self._entries_kept >= ENTRIES_KEPT_MAX:
                self._forget_rights()
            rights = self._rights[user, address] = self._rights_from(user, address_of(address))
            self._entries_kept += 1
        return rights

    def _rights_from(self, user: str, source: Address | None) -> Rights:
        """Addresses for which the same entries hold share them."""
        acl = self._acls.get(user)
        entries = () if acl is None else tuple(chain.from_iterable(acl.policies.values()))
        held = bytes(entry.is_from(source) for entry in entries if entry.sources)
        rights = self._shared_rights.get((user, held))
        if rights is None:
            rights = self._shared_rights[user, held] = Rights(acl, source)
            self._entries_kept += len(entries) - held.count(0)
        return rights

    def _forget_rights(self) -> None:
        self._rights.clear()
        self._shared_rights.clear()
        self._entries_kept = 0


def _failed_login(fault: str, name: str, delay_s: float = 0.0) -> Refusal:
    remark = fault if fault is WRONG_SIGNATURE else f"User:{name[:TEXT_CHARS_MAX]} {fault}"
    return Refusal(ResponseCode.NO_PERMISSION, remark, delay_s=delay_s)
