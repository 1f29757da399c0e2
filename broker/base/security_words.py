"""Words by which a key of a configuration sounds like security, although no server has this key. Pure functions.

Who writes `requireLogin=true` relies on it: a server that ignored the key would be open. Words are compared one by one:
`requireLogin`, `require.login`, `REQUIRE_LOGIN` and `requirelogin` are the same.
"""

import re

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
        login logins logon signin signon password passwords passwd passphrase pwd credential credentials auth authn
        oauth oauth2 oidc saml jwt token tokens ldap kerberos krb krb5 keytab jaas sasl scram gssapi spnego radius pam
        sso mfa 2fa otp totp user users username admin admins superuser superusers principal principals secret secrets
        apikey apikeys accesskey accesskeys signature signatures sign signed signing hmac secure secured security
        protect protected protection harden hardened hardening lockdown lockout lockouts bruteforce anonymous guest
        insecure unauthenticated identityprovider requirepass masterauth masteruser safemode private privatemode
        failedattempts
    """,
    ACCESS_CONTROL: """
        acl acls authz rbac role roles permission permissions privilege privileges whitelist whitelists allowlist
        blacklist blocklist denylist deny denied restrict restricted restriction restrictions firewall ipfilter
        access accesscontrol accesslist everyone unauthorized loopbackonly localonly localhostonly internalonly
        policyfile policyfiles policypath policyfolder policydir policyurl policyengine policies
        ban banned bans banlist ipallow
    """,
    TLS: """
        ssl tls mtls https cert certs cipher ciphers keystore truststore trust trusted x509 pem pkcs12 jks crl ocsp
        verifyhostname verifypeer verifypeers verifyclient verifyclients checkhostname hostnameverification privatekey
        keyfile keypath cafile capath cacert rootca fips plaintext cleartext unencrypted
    """,
    AUDIT_LOG: "audit audits auditing auditlog",
}
_ALLOWED, _PEERS = (
    "allow allowed permit permitted approved",
    "ip ips host hosts client clients address addresses network networks subnet subnets cidr cidrs source sources "
    "origin origins from",
)
_WORDS = {word: protection for protection, text in _LISTS.items() for word in text.split()}
_WORDS |= {verb + noun: ACCESS_CONTROL for verb in _ALLOWED.split() for noun in _PEERS.split()}
_DATA = "message messages property properties"
_ORDINARY = {
    "user users": f"{_DATA} home dir directory agent defined data space thread threads memory cpu time timezone "
    "language country region",
    "token tokens": f"{_DATA} bucket buckets rate refill burst per limit count",
    "secret accesskey accesskeys": "store oss",
    "access": f"{_DATA} store memory disk time frequency random pattern order count addr address url",
    "role roles": "broker ha node process replica change changed changes",
    "admin": "broker port host addr address url thread threads pool queue timeout topic tool",
    "keyfile keypath": f"{_DATA} cache index partition sort row hash routing sharding",
    "sign signed": "bit extension number numbers integer",
    "protect protected protection": f"{_DATA} overload load memory heap overflow brain flow disk crash",
    "restrict restricted": "memory heap cpu",
    "private": f"{_DATA} ip ips addr address host port memory heap dirty topic",
    "policyfile policypath policydir policyfolder": "retention cleanup clean delete flush compaction retry",
}
"""Words → words next to them with which they mean something else: `tokenBucketSize`, `messageUsers`."""
_EXCEPTIONS = {word: frozenset(text.split()) for words, text in _ORDINARY.items() for word in words.split()}
_PARTS = {
    re.compile(
        r"login(?!terval|dex|fo)|passw|passphrase|credential|authentic|kerberos|anonym|superuser|secur|signature"
        r"|lockout|bruteforce"
    ): AUTHENTICATION,
    re.compile(r"authori[sz]|whitelist|allowlist|blacklist|denylist|firewall|permission"): ACCESS_CONTROL,
    re.compile(r"certificate|keystore|truststore|encrypt|cipher|plaintext"): TLS,
    re.compile(r"audit"): AUDIT_LOG,
    re.compile(r"(ssl|tls)$|^(ssl|tls)"): TLS,
    re.compile(r"acls?$|^acl"): ACCESS_CONTROL,
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
_NO_PROTECTION = re.compile(r"anonym|guest|everyone|plaintext|cleartext|^public$|^insecure|^un(auth|encrypt)")
_OPPOSITE = re.compile(r"^(disabled?|skip|no|without|ignore|bypass|open|optional)$")
_REFUSED = re.compile(r"^(reject|deny|forbid|block|prohibit|refuse)$")


def words_of(key: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(key)]


def is_off(text: str) -> bool:
    """Whether a value says that what its key names is not wanted."""
    return text.strip().lower() in _OFF


def asked(key: str, text: str) -> str | None:
    """The protection that an unknown key asks for with this value."""
    inverse = is_inverse(key)
    if (is_off(text) or (inverse and text.strip().lower() in _REFUSES)) != inverse:
        return None
    return next(iter(_sounds(key).values()), None)


def is_inverse(key: str) -> bool:
    """Whether the key asks for protection if it is switched off: `allowAnonymous`, `disableAuth`."""
    words = words_of(key)
    open_ways = sum(_NO_PROTECTION.search(word) is not None for word in words)
    ends = {*words[:1], *words[-1:]}
    inverse = sum(_OPPOSITE.search(word) is not None for word in ends)
    inverse += sum(_REFUSED.search(word) is not None for word in ends) if open_ways else 0
    return (open_ways + inverse) % 2 == 1


def sounds_of(key: str) -> frozenset[str]:
    """What in the key sounds like security."""
    return frozenset(sound.lower().removesuffix("s") for sound in _sounds(key))


def _sounds(key: str) -> dict[str, str]:
    """What sounds like security → the protection; the most certain one first."""
    words = words_of(key)
    found = {part: _ABBREVIATIONS[part] for part in _ABBREVIATIONS if part in key}
    for length in (1, 2):
        for start in range(len(words) - length + 1):
            word = "".join(words[start : start + length])
            beside = {*words[max(start - 1, 0) : start], *words[start + length : start + length + 1]}
            if word in _WORDS and not beside & _EXCEPTIONS.get(word, frozenset()):
                found[word] = _WORDS[word]
    for word in words:
        for part, protection in _PARTS.items():
            if (match := part.search(word)) is not None:
                found.setdefault(match[0], protection)
    return found
