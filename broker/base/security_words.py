"""Words by which a key of a configuration sounds like security, although no server has this key. Pure functions.

Who writes `requireLogin=true` relies on it: a server that ignored the key would be open. Words are compared one by one:
`requireLogin`, `require.login`, `REQUIRE_LOGIN` and `requirelogin` are the same.
"""

import re
from itertools import product

AUTHENTICATION, ACCESS_CONTROL, TLS, AUDIT_LOG = "authentication", "access control", "TLS", "an audit log"
SWITCHES = {
    AUTHENTICATION: "authenticationEnabled",
    ACCESS_CONTROL: "authorizationEnabled",
    TLS: "tls.server.mode",
    AUDIT_LOG: "authAuditLog",
}
"""Protection → the key that switches it on."""

_OFF = {"", "false", "f", "no", "n", "off", "none", "never", "disabled", "disable", "null", "0"}
_REFUSES = {
    "deny",
    "denied",
    "reject",
    "rejected",
    "refuse",
    "refused",
    "forbid",
    "forbidden",
    "block",
    "blocked",
}
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_LISTS = {
    AUTHENTICATION: """
        login logon signin signon password passwd passphrase pwd credential auth authn account identity
        oauth oauth2 oidc saml jwt token ldap kerberos krb krb5 keytab jaas sasl scram gssapi spnego radius pam
        sso mfa 2fa otp totp twofactor 2factor multifactor secondfactor psk pskfile sharedkey presharedkey
        user username admin superuser principal secret apikey accesskey signature sign signed signing hmac
        secure secured security protect protected protection harden hardened hardening lockdown lockout bruteforce
        anonymous guest insecure unauthenticated identityprovider requirepass masterauth masteruser safemode private
        privatemode failedattempt
    """,
    ACCESS_CONTROL: """
        acl authz rbac role permission privilege whitelist allowlist blacklist blocklist denylist deny denied
        restrict restricted restriction firewall ipfilter access accesscontrol accesslist everyone unauthorized
        loopbackonly localonly localhostonly internalonly policy policyfile policypath policyfolder policydir
        policyurl policyengine ban banned banlist untrusted public publicread publicwrite publicaccess
    """,
    TLS: """
        ssl tls mtls https cert cipher keystore truststore trust trusted x509 pem pkcs12 jks crl ocsp
        checkhostname hostnameverification privatekey keyfile keypath cafile capath cacert rootca fips plaintext
        cleartext unencrypted
    """,
    AUDIT_LOG: "audit auditing auditlog",
}
"""One form of each word: `canonical` finds it for the plural."""
_PEERS = "ip host client address network subnet cidr source origin from peer user"
_BEFORE = (
    "use uses enable enabled disable disabled require required requires force start with without no skip only allow "
    "mutual broker server client proxy namesrv listener netty remoting master slave replication ha"
)
"""Words next to `tls`, `ssl` or `acl` in a key without capitals; `settls` is another word."""
_PAIRS = (
    (ACCESS_CONTROL, "allow allowed permit permitted approved block blocked filter", _PEERS),
    (ACCESS_CONTROL, "allow permit trust accept grant", "all any"),
    (
        ACCESS_CONTROL,
        "only reject refuse deny block drop allow accept permit",
        "known unknown unsigned unverified",
    ),
    (TLS, _BEFORE, "ssl tls"),
    (ACCESS_CONTROL, _BEFORE, "acl"),
    (AUTHENTICATION, "require required mandatory", "key"),
    (AUTHENTICATION, "verify verified verification validate validation", "client peer host hostname"),
)
"""Protection, and words that mean it if one of the first stands next to one of the second."""
_WORDS = {word: protection for protection, text in _LISTS.items() for word in text.split()}
for _protection, _first, _second in _PAIRS:
    for _one, _other in product(_first.split(), _second.split()):
        _WORDS |= {_one + _other: _protection, _other + _one: _protection}
_DATA = "message property"
_MEASURED = f"{_DATA} count total size time log"
_ORDINARY = {
    "user": f"{_MEASURED} topic group home dir directory agent defined data space thread memory cpu timezone "
    "language country region",
    "account": "store storage oss cloud",
    "identity": f"{_MEASURED} broker node container hash",
    "token": f"{_MEASURED} max min cancel cancellation bucket rate refill burst per limit",
    "secret accesskey": "store oss",
    "access": f"{_MEASURED} last store memory disk frequency random pattern order addr address url",
    "role": f"{_MEASURED} broker ha node process replica change changed name",
    "admin": "broker port host addr address url thread pool queue timeout topic tool",
    "keyfile keypath": f"{_DATA} cache index partition sort row hash routing sharding",
    "requirekey requiredkey keyrequired": _DATA,
    "sign signed": "bit extension number integer time",
    "protect protected protection": f"{_DATA} overload load memory heap overflow brain flow disk crash fail",
    "restrict restricted": "memory heap cpu",
    "private": f"{_DATA} ip addr address host port memory heap dirty topic",
    "public": f"{_DATA} ip addr address host hostname name port url api",
    "policy policyfile policypath policydir policyfolder": f"{_MEASURED} retention cleanup clean delete flush "
    "compaction retry topic storage store eviction expiry replication rebalance balance backoff overflow discard "
    "reject rejection queue",
    "onlyknown rejectunknown refuseunknown denyunknown dropunknown allowunknown acceptunknown permitunknown "
    "blockunknown": f"{_DATA} topic group key field code request tag version",
    "allowall allowany permitall permitany acceptall acceptany": f"{_DATA} topic tag",
}
"""Words → words next to them with which they mean something else: `tokenBucketSize`, `messageUsers`."""
_EXCEPTIONS = {word: frozenset(text.split()) for words, text in _ORDINARY.items() for word in words.split()}
_PARTS = {
    re.compile(
        r"login(?!terval|dex|fo)|passw|passphrase|credential|authentic|kerberos|anonym|guest|superuser|secur|signature"
        r"|lockout|bruteforce"
    ): AUTHENTICATION,
    re.compile(r"authori[sz]|whitelist|allowlist|blacklist|denylist|firewall|permission"): ACCESS_CONTROL,
    re.compile(r"certificate|keystore|truststore|crypt|cipher|plaintext"): TLS,
    re.compile(r"audit"): AUDIT_LOG,
    re.compile(r"^(ssl|tls)"): TLS,
    re.compile(r"^acl"): ACCESS_CONTROL,
    re.compile(r"auth$|^auth(?!or)"): AUTHENTICATION,
}
"""Parts of a word, for keys without capitals and separators."""
_ABBREVIATIONS = {
    "SSL": TLS,
    "TLS": TLS,
    "ACL": ACCESS_CONTROL,
    "SASL": AUTHENTICATION,
    "LDAP": AUTHENTICATION,
}
_ABBREVIATION = re.compile(r"(?<![A-Z])(?:SSL|TLS|ACL|SASL|LDAP)")
_NO_PROTECTION = re.compile(
    r"anonym|guest|everyone|plaintext|cleartext|\bpublic(read|write|access)?\b(?! key)|\binsecure"
    r"|\bun(auth|encrypt|trusted|signed|known|verified)"
    r"|\b(empty|blank|without)\b|\b(allow|permit|trust|accept|grant)(ed)? ?(all|any)\b"
    r"|\b(allow|permit|accept|reject|deny|refuse|forbid)(ed|s)? no\b"
)
"""Each match in the words of a key, separated by spaces, is a way in without protection."""
_OPPOSITE = re.compile(r"^(disabled?|skip|no|ignore|bypass|open|optional)$")
_REFUSED = re.compile(r"^(reject|deny|forbid|block|prohibit|refuse|drop)$")
_JOINED = re.compile(
    r"\b(allow|accept|permit|reject|deny|forbid|block|prohibit|refuse|drop|disable|skip|no|ignore|bypass)"
    r"(?=anonym|guest|everyone|plaintext|cleartext|insecure|un(auth|encrypt|trusted|signed|known|verified)|auth|acl|tls"
    r"|ssl|password|login|empty|no)"
)
"""A verb that is written without a separator: `rejectguests`."""


def words_of(key: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(key)]


def canonical(word: str) -> str:
    """The form of a word that the tables have: that of the singular."""
    if word in _WORDS or len(word) < 3:
        return word
    for plural, singular in (("ies", "y"), ("sses", "ss"), ("ss", "ss"), ("s", "")):
        if word.endswith(plural):
            return word.removesuffix(plural) + singular
    return word


def is_off(text: str) -> bool:
    """Whether a value states that what its key names is not wanted."""
    return text.strip().lower() in _OFF


def asked(key: str, text: str) -> str | None:
    """The protection that an unknown key asks for with this value."""
    inverse = is_inverse(key)
    if (is_off(text) or (inverse and text.strip().lower() in _REFUSES)) != inverse:
        return None
    return next(iter(_sounds(key).values()), None)


def is_inverse(key: str) -> bool:
    """Whether the key asks for protection if it is switched off: `allowAnonymous`, `disableAuth`."""
    text = _JOINED.sub(r"\1 ", " ".join(words_of(key)))
    words = text.split()
    open_ways = len(_NO_PROTECTION.findall(text))
    ends = {*words[:1], *words[-1:]}
    inverse = sum(_OPPOSITE.search(word) is not None for word in ends)
    inverse += sum(_REFUSED.search(word) is not None for word in ends) if open_ways else 0
    return (open_ways + inverse) % 2 == 1


def sounds_of(key: str) -> frozenset[str]:
    """What in the key sounds like security."""
    return frozenset(canonical(sound.lower()) for sound in _sounds(key))


def _sounds(key: str) -> dict[str, str]:
    """What sounds like security → the protection; the most certain one first."""
    words = words_of(key)
    found = {part: _ABBREVIATIONS[part] for part in _ABBREVIATION.findall(key)}
    for length in (1, 2):
        for start in range(len(words) - length + 1):
            word = canonical("".join(map(canonical, words[start : start + length])))
            beside = {*map(canonical, (*words[max(start - 1, 0) : start], *words[start + length :][:1]))}
            if word in _WORDS and not beside & _EXCEPTIONS.get(word, frozenset()):
                found[word] = _WORDS[word]
    for word in words:
        for part, protection in _PARTS.items():
            if (match := part.search(word)) is not None:
                found.setdefault(match[0], protection)
    return found
