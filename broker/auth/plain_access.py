"""PlainAccess: checks requests by the accounts of `plain_acl.yml` and `conf/acl`. Loop thread."""

import logging
from collections.abc import Callable
from hmac import compare_digest

from firearrow._native.protocol.access_model import Action, address_of
from firearrow._native.protocol.policy_decision import Need
from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.auth import signatures
from firearrow.broker.auth.audit_log import AuditLog, audit_refusal, ip_of
from firearrow.broker.auth.bodies import TEXT_CHARS_MAX
from firearrow.broker.auth.body_rights import topic_need
from firearrow.broker.auth.failed_logins import TOO_MANY, FailedLogins, Watcher
from firearrow.broker.auth.plain_accounts import Account, PlainAcl, is_trace
from firearrow.broker.auth.plain_files import PlainFiles, Reading
from firearrow.broker.auth.request_rights import Facts, needs_of
from firearrow.broker.base.errors import Refusal
from firearrow.broker.base.peer import Peer, ip_text

log = logging.getLogger("firearrow.auth")

EXCEPTION = "org.apache.rocketmq.acl.common.AclException: "
"""Apache's remarks begin with it."""
WRONG_PASSWORD = "wrong account or key"
NO_ACCOUNT, WRONG_SIGNATURE = "No acl config for ", "Check signature failed for accessKey="
FIREARROW_CODES = 30
"""Thousands of the codes of FireArrow alone, which list or change what others have."""
ADMIN_CODES = frozenset(
    (
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        RequestCode.UPDATE_BROKER_CONFIG,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        RequestCode.DELETE_SUBSCRIPTIONGROUP,
        RequestCode.DELETE_TOPIC_IN_BROKER,
        *(code for code in RequestCode if code // 1000 == FIREARROW_CODES),
    )
)
LoggedIn = Callable[[Peer, Account], None]


class PlainAccess:
    """`logged_in(peer, account)`: a signed request was let through. `changed()`: accounts or white
    addresses did."""

    def __init__(
        self,
        files: PlainFiles,
        facts: Facts,
        failed: FailedLogins,
        audit: AuditLog | None,
        logged_in: LoggedIn,
        changed: Callable[[], None],
    ) -> None:
        self.files = files
        self._facts = facts
        self._failed = failed
        self._audit = audit
        self._report_login = logged_in
        self._changed = changed
        self._logins: dict[Peer, str] = {}
        """"": it has to log in again."""

    @property
    def acl(self) -> PlainAcl:
        return self.files.acl

    def load(self) -> None:
        """StartError: a file cannot be used."""
        self.files.load()

    def reload(self) -> None:
        """As `files.read_changed`, then `take`."""
        self.take(self.files.read_changed())

    def take(self, reading: Reading) -> None:
        """Use the files that have changed."""
        if not self.files.take(reading):
            return
        self.forget()
        log.info("files with accounts were loaded: %d accounts", len(self.acl.accounts))
        if self._audit is not None:
            self._audit.change("loadPlainAcl", None, "", accounts=len(self.acl.accounts))

    def forget(self) -> None:
        """Accounts or white addresses changed."""
        self._logins = dict.fromkeys(self._logins, "")
        self._changed()

    def check(self, request: RemotingCommand, peer: Peer, is_served: bool) -> None:
        """Refusal: the request is refused. The order of checks is Apache's."""
        try:
            self._check(request, peer, is_served)
        except Refusal as refusal:
            audit_refusal(self._audit, request, peer, refusal)
            raise

    def check_held(self, request: RemotingCommand, peer: Peer) -> None:
        """Refusal: a request that was let through, and is held since, may not be answered any more. No login is
        counted, neither as good nor as failed."""
        try:
            self._check_held(request, peer)
        except Refusal as refusal:
            audit_refusal(self._audit, request, peer, refusal)
            raise

    def _check_held(self, request: RemotingCommand, peer: Peer) -> None:
        address = address_of(ip_of(peer))
        if any(white.match(address) for white in self.acl.white):
            return
        name = request.ext.get(signatures.ACCESS_KEY, "")
        account = self.acl.accounts.get(name)
        if account is None:
            raise _refused(NO_ACCOUNT + name[:TEXT_CHARS_MAX])
        if account.white.match(address):
            return
        if request.secret != account.secret_key and not signatures.is_signed(
            request, account.secret_key, always_without_query=True
        ):
            raise _refused(WRONG_SIGNATURE + name)
        self._authorize(request, account)

    def _check(self, request: RemotingCommand, peer: Peer, is_served: bool) -> None:
        ip = ip_of(peer)
        address = address_of(ip)
        if any(white.match(address) for white in self.acl.white):
            return
        name = request.ext.get(signatures.ACCESS_KEY, "")
        if self._logins.get(peer) != name and (wait_s := self._failed.wait_s(ip, name, peer)) > 0:
            raise _refused(TOO_MANY.format(ip, wait_s), passes=True)
        if not name:
            self._failed.note(ip, "No accessKey is configured")
            raise _refused("No accessKey is configured")
        account = self.acl.accounts.get(name)
        if account is None:
            raise self._failed_login(peer, NO_ACCOUNT, name)
        if account.white.match(address):
            request.user = account.access_key
            return
        if not signatures.is_signed(request, account.secret_key, always_without_query=True):
            raise self._failed_login(peer, WRONG_SIGNATURE, name)
        request.user, request.secret = account.access_key, account.secret_key
        self._note_login(peer, account)
        if is_served:
            self._authorize(request, account)

    def _failed_login(self, peer: Peer, fault: str, name: str) -> Refusal:
        if self._logins.get(peer) == name:
            self._logins[peer] = ""
        delay_s = self._failed.failed(ip_of(peer), fault.rstrip(" ="), name, peer)
        return Refusal(ResponseCode.SYSTEM_ERROR, EXCEPTION + fault + name[:TEXT_CHARS_MAX], delay_s=delay_s)

    def _note_login(self, peer: Peer, account: Account) -> None:
        known = self._logins.get(peer)
        if known == account.access_key or peer.closed:
            return
        if known is None:
            peer.on_close(self._closed)
        self._report_login(peer, account)
        self._failed.succeeded(ip_of(peer), account.access_key)
        self._logins[peer] = account.access_key

    def _closed(self, peer: Peer) -> None:
        self._logins.pop(peer, None)

    def _authorize(self, request: RemotingCommand, account: Account) -> None:
        try:
            needs = list(needs_of(request, self._facts))
        except ValueError as error:
            raise Refusal(ResponseCode.SYSTEM_ERROR, str(error)) from None
        if request.code in ADMIN_CODES and not account.admin:
            key = account.access_key
            raise _refused(
                f"Need admin permission for request code={request.code}, but accessKey={key} is not"
            )
        fault = first_fault(account, needs)
        if fault is not None:
            raise _refused(fault)

    def watcher_fault(self, watcher: Watcher, name: str, password: str) -> str | None:
        """Why who sends this password may not watch the broker by HTTP, which needs an account with `admin`; None: they
        may."""
        ip = ip_text(watcher.host)
        address = address_of(ip)
        if any(white.match(address) for white in self.acl.white):
            return None
        if not name:
            return "log in with an account that has admin"
        if (wait_s := self._failed.wait_s(ip, name, watcher)) > 0:
            return TOO_MANY.format(ip, wait_s)
        account = self.acl.accounts.get(name)
        if account is None or not compare_digest(account.secret_key.encode(), password.encode()):
            self._failed.failed(ip, WRONG_PASSWORD, name, watcher)
            return WRONG_PASSWORD
        self._failed.succeeded(ip, name)
        return None if account.admin else f"account {name[:TEXT_CHARS_MAX]} has no admin"

    def may_send(self, name: str | None, topic: str, peer: Peer) -> bool:
        """Whether who announced a producer may send to the topic; None: its address is white."""
        account = None if name is None else self.acl.accounts.get(name)
        if account is not None and account.white.match(address_of(ip_of(peer))):
            return True
        return name is None or self.allows(name, [topic_need(topic, Action.PUB)])

    def allows(self, name: str, needs: list[Need]) -> bool:
        """Whether an account that has logged in may do all of this."""
        account = self.acl.accounts.get(name)
        return account is not None and first_fault(account, needs) is None


def first_fault(account: Account, needs: list[Need]) -> str | None:
    """Every account may write traces; a request that names their topic needs its other rights all the same."""
    others = (need for need in needs if not is_trace(need))
    return next((fault for need in others if (fault := account.fault(need)) is not None), None)


def _refused(text: str, *, passes: bool = False) -> Refusal:
    return Refusal(ResponseCode.SYSTEM_ERROR, EXCEPTION + text, passes=passes)
