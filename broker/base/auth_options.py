"""What the options of users and rules mean, and what is wrong with them. Pure functions.

A configuration that asks for protection which cannot take effect is refused: the broker would be open.
"""

import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import orjson

from firearrow.broker.base.options import Options

STATEFUL_S = 60.0
"""How long a login of a connection holds with the stateful strategy."""
WHITELIST_MAX = 1000
_APACHE = "org.apache.rocketmq.auth."
_CLASSES = {
    "authenticationProvider": ("authentication.provider.DefaultAuthenticationProvider",),
    "authorizationProvider": ("authorization.provider.DefaultAuthorizationProvider",),
    "authenticationMetadataProvider": ("authentication.provider.LocalAuthenticationMetadataProvider",),
    "authorizationMetadataProvider": ("authorization.provider.LocalAuthorizationMetadataProvider",),
    "authenticationStrategy": (
        "authentication.strategy.StatelessAuthenticationStrategy",
        "authentication.strategy.StatefulAuthenticationStrategy",
    ),
    "authorizationStrategy": (
        "authorization.strategy.StatelessAuthorizationStrategy",
        "authorization.strategy.StatefulAuthorizationStrategy",
    ),
}


NAME_SERVER_KEYS = (
    *_CLASSES,
    "authenticationEnabled",
    "authorizationEnabled",
    "initAuthenticationUser",
    "innerClientAuthenticationCredentials",
    "authenticationWhitelist",
    "authorizationWhitelist",
    "authAuditLog",
    "brokerClusterName",
)
"""Keys of users and rules that a name server alone also has. `brokerClusterName`: the cluster that its rules name."""


SWITCHES = frozenset(("authenticationEnabled", "authorizationEnabled", "aclEnable"))
_OF_USERS = (
    ("initAuthenticationUser", "initial_user"),
    ("innerClientAuthenticationCredentials", "inner_credentials"),
    ("authenticationWhitelist", "authentication_whitelist"),
    ("authenticationStrategy", "authentication_strategy"),
    ("authenticationProvider", "authentication_provider"),
    ("authenticationMetadataProvider", "user_provider"),
)
_OF_RULES = (
    ("authorizationWhitelist", "authorization_whitelist"),
    ("authorizationStrategy", "authorization_strategy"),
    ("authorizationProvider", "authorization_provider"),
    ("authorizationMetadataProvider", "rule_provider"),
)


class Credentials(NamedTuple):
    name: str
    password: str


def auth_faults(options: Options, *, off: Collection[str] = ()) -> Iterator[str]:
    """What is wrong with the options of users and rules, a sentence each. `off`: the switches that the configuration
    sets to false, so that what it states about users is known to have no effect."""
    yield from _idle_faults(options, off)
    if options.authentication:
        yield from _class_faults(options)
        yield from _value_faults(options)
    yield from _switch_faults(options)


def switched_off(pairs: Mapping[str, str]) -> frozenset[str]:
    """The switches that are set to false."""
    return frozenset(key for key in SWITCHES if pairs.get(key, "").strip().lower() == "false")


def _idle_faults(options: Options, off: Collection[str]) -> Iterator[str]:
    """Options that mean something only with users, or with rules, which are neither on nor switched off. A switch that
    is off, such as the old aclEnable, counts for its own options alone."""
    idle: list[tuple[str, str, str]] = []
    if not options.authentication:
        if "authenticationEnabled" not in off:
            idle += [(key, getattr(options, name), "authenticationEnabled=true") for key, name in _OF_USERS]
        if not options.plain_acl:
            if "authenticationEnabled" not in off:
                switches = "authenticationEnabled=true, or aclEnable=true"
                idle.append(("authAuditLog", options.audit_log, switches))
            if not options.migrate_accounts and "aclEnable" not in off:
                idle.append(("rocketmq.acl.plain.file", options.plain_acl_file, "aclEnable=true"))
    if not options.authorization and not {"authenticationEnabled", "authorizationEnabled"} & set(off):
        idle += [(key, getattr(options, name), "authorizationEnabled=true") for key, name in _OF_RULES]
    for key, text, switch in idle:
        if text:
            may = "anyone may do everything" if not options.authentication else "each user may do everything"
            yield f"{key} needs {switch}: without it {may}"


def _value_faults(options: Options) -> Iterator[str]:
    for check in (
        lambda: initial_user(options),
        lambda: inner_credentials(options),
        lambda: codes("authenticationWhitelist", options.authentication_whitelist),
        lambda: codes("authorizationWhitelist", options.authorization_whitelist),
    ):
        try:
            check()
        except ValueError as error:
            yield str(error)


def _switch_faults(options: Options) -> Iterator[str]:
    """Switches that exclude or need each other."""
    if options.authorization and not options.authentication:
        yield (
            "authorizationEnabled=true needs authenticationEnabled=true: without it anyone may name any user"
        )
    if options.plain_acl and options.authentication:
        yield (
            "aclEnable=true and authenticationEnabled=true exclude each other: remove aclEnable, and set "
            "migrateAuthFromV1Enabled=true to take over the accounts of plain_acl.yml"
        )
    if options.migrate_accounts and not options.authentication:
        yield "migrateAuthFromV1Enabled=true needs authenticationEnabled=true"
    if (options.plain_acl or options.migrate_accounts) and plain_acl_path(options) is None:
        key = "aclEnable" if options.plain_acl else "migrateAuthFromV1Enabled"
        yield f"{key}=true needs the path of plain_acl.yml in rocketmq.acl.plain.file"


def initial_user(options: Options) -> Credentials | None:
    """The user of `initAuthenticationUser`. ValueError."""
    return _credentials("initAuthenticationUser", options.initial_user, "username", "password")


def inner_credentials(options: Options) -> Credentials | None:
    """The keys of `innerClientAuthenticationCredentials`. ValueError."""
    key = "innerClientAuthenticationCredentials"
    return _credentials(key, options.inner_credentials, "accessKey", "secretKey")


def codes(key: str, text: str) -> frozenset[int]:
    """The request codes in a white list. Message names of gRPC are left out. ValueError."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    if len(words) > WHITELIST_MAX:
        raise ValueError(f"{key} has {len(words)} codes, at most {WHITELIST_MAX} are allowed")
    found = set()
    for word in words:
        if word.startswith("apache.rocketmq.v2."):
            continue
        if not word.isdecimal() or len(word) > 9:
            raise ValueError(f"{key} must be request codes separated by commas, not {word[:64]!r}")
        found.add(int(word))
    return frozenset(found)


def stateful_s(options: Options) -> float:
    """How long a login holds; 0: each request's signature is checked."""
    return STATEFUL_S if options.authentication_strategy.endswith("StatefulAuthenticationStrategy") else 0.0


def plain_acl_path(options: Options, environment: Mapping[str, str] = os.environ) -> Path | None:
    """The path of `plain_acl.yml`; None: nothing names it."""
    if options.plain_acl_file:
        return Path(options.plain_acl_file)
    home = environment.get("ROCKETMQ_HOME")
    return Path(home, "conf", "plain_acl.yml") if home else None


def plain_acl_folder(path: Path, environment: Mapping[str, str] = os.environ) -> Path:
    """The folder of further files: `conf/acl` of Apache's home, or `acl` beside `plain_acl.yml`."""
    home = environment.get("ROCKETMQ_HOME")
    return Path(home, "conf", "acl") if home else path.parent / "acl"


def _class_faults(options: Options) -> Iterator[str]:
    given = {
        "authenticationProvider": options.authentication_provider,
        "authorizationProvider": options.authorization_provider,
        "authenticationMetadataProvider": options.user_provider,
        "authorizationMetadataProvider": options.rule_provider,
        "authenticationStrategy": options.authentication_strategy,
        "authorizationStrategy": options.authorization_strategy,
    }
    for key, text in given.items():
        allowed = [_APACHE + name for name in _CLASSES[key]]
        if text and text not in allowed:
            yield f"{key} must be empty or {' or '.join(allowed)}: this broker runs no other class"


def _credentials(key: str, text: str, name: str, password: str) -> Credentials | None:
    if not text:
        return None
    try:
        members = orjson.loads(text)
    except ValueError:
        members = None
    if isinstance(members, dict):
        found = members.get(name), members.get(password)
        if all(isinstance(value, str) and value.strip() for value in found):
            return Credentials(str(found[0]), str(found[1]))
    raise ValueError(f'{key} must be {{"{name}":"…","{password}":"…"}}')
