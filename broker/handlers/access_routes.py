"""access_routes: the handlers of users and rules, or of accounts, of a broker or a name server. Loop thread."""

from firearrow.broker.auth.access import Access
from firearrow.broker.base.clock import Clock
from firearrow.broker.base.options import Options
from firearrow.broker.base.peer import Routes


def access_routes(access: Access, options: Options, clock: Clock) -> list[Routes]:
    """Those of what the options ask for; without users and accounts none."""
    if access.check is None:
        return []
    if options.authentication:  # imports only what is used: most brokers check nothing, none has both
        from firearrow.broker.auth.user_access import UserAccess  # noqa: PLC0415
        from firearrow.broker.handlers.acls import AclsHandler  # noqa: PLC0415
        from firearrow.broker.handlers.users import UsersHandler  # noqa: PLC0415

        assert isinstance(access, UserAccess)
        users, acls, audit = access.users, access.acls, access.audit
        return [
            UsersHandler(users, acls, access.control, audit).routes(),
            AclsHandler(users, acls, audit).routes(),
        ]
    from firearrow.broker.auth.account_access import AccountAccess  # noqa: PLC0415
    from firearrow.broker.handlers.plain_acl import PlainAclHandler  # noqa: PLC0415

    assert isinstance(access, AccountAccess)
    plain = access.plain
    return [PlainAclHandler(plain.files, options, clock, access.audit, plain.forget).routes()]
