"""Access: what checks requests: nothing, or in derived classes users and rules, or accounts. Loop thread."""

from collections.abc import Callable

from firearrow._native.fastpath.access_check import AccessCheck
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.auth.audit_log import AuditLog
from firearrow.broker.auth.failed_logins import Watcher
from firearrow.broker.base.peer import Check, HeldAccess

LogIn = Callable[[Watcher, str, str], str | None]
"""Why who sends this name and password may not watch the broker; None: they may."""


class Access:
    """`check`: the dispatchers call it before each request; None: everyone may do everything."""

    check: Check | None = None
    audit: AuditLog | None = None
    fast_check: AccessCheck | None = None
    """The same for plain sends and pulls of connections that have logged in."""

    def __init__(self) -> None:
        self.held = HeldAccess()
        """Checks held requests again."""

    def sign(self, request: RemotingCommand) -> None:
        """Sign a request of the broker to another server, if it has keys."""

    @property
    def log_in(self) -> LogIn | None:
        """Who may watch the broker by HTTP; None: everyone."""
        return None

    def read_again(self) -> None:
        """Read files again that others change. Called every few seconds."""

    def close(self) -> None: ...
