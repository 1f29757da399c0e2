"""The keys of Apache's configuration: which exist, with which defaults, and which ask for security.

`security_words` knows keys that exist nowhere and sound like security.

`apache_keys.txt` has each key of Apache's broker 5.5.0 with its default; no value if that depends on the host or
is null. A configuration that asks for protection which the server does not have, or by a key that is written in
another way, is refused: its author relies on it.
"""

from collections.abc import Collection, Iterable, Mapping
from functools import cache
from pathlib import Path

from firearrow.broker.base import security_words
from firearrow.broker.base.security_words import ACCESS_CONTROL, AUDIT_LOG, AUTHENTICATION, TLS, words_of

KEY_CHARS_SHOWN = 64
SIMILARITY = 0.7
"""Least similarity, as difflib measures it, of a known key to an unknown one."""
MISSPELT = 0.84
"""The same, of a key that asks for security to an unknown one which then counts as that key, misspelt."""

_ACL, _USERS, _TLS = ACCESS_CONTROL, AUTHENTICATION, TLS
_SWITCHES = {
    "aclEnable": _ACL,
    "enableACL": _ACL,
    "enableAclRpcHookForClusterMode": _ACL,
    "authorizationEnabled": _ACL,
    "migrateAuthFromV1Enabled": _USERS,
    "authenticationEnabled": _USERS,
    "useTLS": _TLS,
    "rocketmq.acl.plain.file": _ACL,
}
_CREDENTIALS = {"initAuthenticationUser", "innerClientAuthenticationCredentials"}
"""They need `authenticationEnabled`, so they request nothing while that is switched off explicitly."""
_DETAILS = {
    **dict.fromkeys(_CREDENTIALS, _USERS),
    "authenticationWhitelist": _USERS,
    "authenticationStrategy": _USERS,
    "authenticationProvider": _USERS,
    "authenticationMetadataProvider": _USERS,
    "authorizationWhitelist": _ACL,
    "authorizationStrategy": _ACL,
    "authorizationProvider": _ACL,
    "authorizationMetadataProvider": _ACL,
    "authAuditLog": AUDIT_LOG,
    "configBlackList": "options that no client may change",
    "haSecret": "protected replication",
    "haAllowedAddresses": "protected replication",
}
"""Their author relies on them as well, so that they may not be misspelt."""
_SELDOM = ("Whitelist", "Strategy", "Provider")
"""Keys that give no protection by themselves end so."""
OUTGOING = ("tls.enable", "useTLS")
"""TLS to other servers."""
OUTGOING_TOO = "tls.server.mode, or tls.enable for connections to name servers"
_TEST_MODE = {"tls.test.mode.enable", "tlsTestModeEnable"}
"""Either value asks for TLS: with a certificate made at the start, or with the one that is named."""


@cache
def apache_defaults() -> Mapping[str, str]:
    """Apache's default by key; an empty text if it is null or depends on the host."""
    text = Path(__file__).with_name("apache_keys.txt").read_text("ascii")
    return dict(line.split("=", 1) for line in text.splitlines())


def apache_keys() -> frozenset[str]:
    """Every key of Apache's broker 5.5.0, whether this broker has it or not."""
    return frozenset(apache_defaults())


def security_fault(
    pairs: Mapping[str, str], supported: Collection[str] = (), others: Collection[str] = ()
) -> str | None:
    """The first of `security_faults`; None if there is none."""
    return next(iter(security_faults(pairs, supported, others).values()), None)


def security_faults(
    pairs: Mapping[str, str], supported: Collection[str] = (), others: Collection[str] = ()
) -> dict[str, str]:
    """Each of these keys that asks for security which cannot take effect, or would if it were not misspelt → what to do
    about it. `supported`: keys that the server has. `others`: keys that it knows besides."""
    found: dict[str, str] = {}
    known = frozenset(supported) | frozenset(others)
    for key, text in pairs.items():
        if key in known:
            continue
        meant = misspelt(key, known)
        protection = protection_of(key) if meant is None else _protection_meant(meant)
        if protection is not None:
            if _switched_off(meant or key, text, pairs):
                continue
        else:
            protection = _asked(key, text, known)
            if protection is None:
                continue
        meant = meant or _nearest(key, protection, known)
        shown = key[:KEY_CHARS_SHOWN]
        if meant in known:
            write = OUTGOING_TOO if meant in OUTGOING else meant
            found[key] = f"{shown} asks for {protection}, but is not a key of this server: write {write}"
        else:
            found[key] = (
                f"{shown} asks for {protection}, which this server does not have: remove the key, and let only "
                "trusted hosts reach the ports (docs/SECURITY.md)"
            )
    return found


def protection_of(key: str) -> str | None:
    """The protection that `key` configures."""
    if key in _SWITCHES or key in _CREDENTIALS:
        return _SWITCHES.get(key, _USERS)
    return _TLS if key.lower().startswith(("tls", "ssl")) or key.endswith("TLS") else None


def _protection_meant(key: str) -> str | None:
    return _DETAILS.get(key) or protection_of(key)


def misspelt(key: str, known: frozenset[str]) -> str | None:
    """The key that asks for security which `key` misspells; None if it does not. `known`: the keys of the server."""
    if key in _SWITCHES or key in _DETAILS or key in apache_defaults() or security_words.is_inverse(key):
        return None
    import difflib  # noqa: PLC0415 (only for keys that are not known)

    forms = _known_forms(known)
    for form in _forms(key[:KEY_CHARS_SHOWN]):
        found = difflib.get_close_matches(form, forms, 1, MISSPELT)
        if found and _protection_meant(forms[found[0]]) is not None:
            return forms[found[0]]
    return None


def _asked(key: str, text: str, known: frozenset[str]) -> str | None:
    """The protection for which a key asks that no server has; None if it misspells one that only sounds so."""
    key = key[:KEY_CHARS_SHOWN]
    protection = security_words.asked(key, text)
    if protection is None or key in apache_defaults():
        return None
    import difflib  # noqa: PLC0415 (only for keys that are not known)

    forms = {form: each for form, each in _known_forms(known).items() if _protection_meant(each) is None}
    sounds = security_words.sounds_of(key)
    for form in _forms(key):
        near = difflib.get_close_matches(form, forms, 1, MISSPELT)
        if near and sounds <= security_words.sounds_of(forms[near[0]]):
            return None
    return protection


def _nearest(key: str, protection: str, known: frozenset[str]) -> str | None:
    """The key of the server that gives this protection, the most similar one of several."""
    import difflib  # noqa: PLC0415 (only for keys that are not known)

    usual = (each for each in sorted(known) if not each.endswith(_SELDOM) and each not in OUTGOING)
    candidates = {
        form: each for each in usual if _protection_meant(each) == protection for form in _forms(each)
    }
    found = difflib.get_close_matches(_forms(key[:KEY_CHARS_SHOWN])[1], candidates, 1, SIMILARITY)
    return candidates[found[0]] if found else security_words.SWITCHES.get(protection)


@cache
def _known_forms(known: frozenset[str]) -> Mapping[str, str]:
    """Form → key, of the server's keys and Apache's; of two with one form, a key of the server."""
    keys = [*sorted(apache_keys() - known), *sorted(known)]
    return {form: key for key in keys for form in _forms(key)}


def _forms(key: str) -> tuple[str, str]:
    """What is compared: the text, and its words in any order."""
    words = ("authentication" if word == "auth" else word for word in words_of(key))
    return key.lower(), " ".join(sorted(words))


def _switched_off(key: str, text: str, pairs: Mapping[str, str]) -> bool:
    """Whether this value, or another setting, states that the protection is not wanted."""
    if key in _CREDENTIALS and pairs.get("authenticationEnabled", "").strip().lower() == "false":
        return True
    accepts_tls = key.startswith("tls") and not key.startswith(("tls.enable", "tls.client"))
    if accepts_tls and pairs.get("tls.server.mode", "").strip().lower() == "disabled":
        return True
    return key not in _TEST_MODE and security_words.is_off(text)


def is_default(key: str, text: str) -> bool:
    """Whether `text` means what Apache does without this key; also if the key is not in `apache_keys.txt`."""
    default, text = apache_defaults().get(key, text.strip()), text.strip()
    if default in ("true", "false"):
        return text.lower() == default
    try:
        return float(text) == float(default)
    except ValueError:
        return text == default


def is_known(key: str) -> bool:
    """Whether Apache, or one of its parts, has this key."""
    return key in apache_defaults() or protection_of(key) is not None


def similar(key: str, known: Iterable[str]) -> str | None:
    """The known key that `key` probably means, None if there is no similar one."""
    import difflib  # noqa: PLC0415 (only for keys that are not known)

    by_lower = {each.lower(): each for each in known}
    found = difflib.get_close_matches(key[:KEY_CHARS_SHOWN].lower(), by_lower, 1, SIMILARITY)
    return by_lower[found[0]] if found else None


def unknown(key: str, known: Iterable[str]) -> str:
    """`KEY` in an error or log line, with the key that is probably meant."""
    meant = similar(key, known)
    return key[:KEY_CHARS_SHOWN] + (f" (did you mean {meant}?)" if meant else "")
