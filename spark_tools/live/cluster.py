"""Cluster: name servers, credentials and connection settings, read from options. Opens nothing. Picklable.

Read from `nameServer` and the options `rocketmq.…`, which have the names of Java's client, in any case.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from firearrow.client.base.errors import ConfigError
from firearrow.client.base.options import ClientOptions, Credentials, SocksProxy, TlsOptions
from firearrow.client.remoting.channels import host_port
from firearrow.client.remoting.tls import made_context
from firearrow.spark_tools.base.errors import InvalidOption

PREFIX = "rocketmq."
TIMEOUT_MS_MAX = 600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The brokers of some name servers, and how to connect to them; `Cluster.of` reads it from options."""

    name_server: str
    """`host:port`, several separated by `;`."""
    access_key: str | None = None
    secret_key: str | None = field(default=None, repr=False)
    security_token: str | None = field(default=None, repr=False)
    namespace: str | None = None
    namespace_v2: str | None = None
    tls: bool = False
    trust_cert: str | None = None
    """File with the certificate authorities to trust; None: the system's. Read on the machine that
    connects."""
    cert: str | None = None
    key: str | None = None
    key_password: str | None = field(default=None, repr=False)
    server_name: str | None = None
    """The name in the servers' certificates; None: the host of each address."""
    check_server: bool = True
    proxies: str | None = field(default=None, repr=False)
    """JSON as Java's socksProxyConfig: network or `*` → {"addr", "username", "password"}."""
    client_ip: str | None = None
    unit_name: str | None = None
    vip_channel: bool = False
    binary_headers: bool = False
    api_timeout_ms: int = 3000
    connect_timeout_ms: int = 3000

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Self:
        """Read `nameServer` and `rocketmq.…`; ignore other options. InvalidOption names the option."""
        given = {name.lower(): str(value) for name, value in options.items()}
        name_server = given.get("nameserver", "").strip()
        if not name_server.strip("; "):
            raise InvalidOption(
                "nameServer: `host:port` of a name server is required, several separated by `;`"
            )
        try:
            for address in filter(None, map(str.strip, name_server.split(";"))):
                host_port(address)
        except ConfigError as error:
            raise InvalidOption(f"nameServer: {error}") from None
        values: dict[str, Any] = {}
        for name, text in given.items():
            if name.startswith(PREFIX):
                setting = _SETTINGS.get(name.removeprefix(PREFIX))
                if setting is None:
                    raise InvalidOption(f"{name}: unknown option; the known ones are {_KNOWN}")
                values[setting[1]] = setting[2](PREFIX + setting[0], text)
        made = cls(name_server=name_server, **values)
        made.options()
        return made

    def options(self) -> ClientOptions:
        """Options for a client. InvalidOption: they contradict each other, or a file cannot be read."""
        credentials = None
        if (self.access_key is None) != (self.secret_key is None):
            raise InvalidOption("rocketmq.accessKey and rocketmq.secretKey: set both or neither")
        if self.access_key is not None and self.secret_key is not None:
            credentials = Credentials(self.access_key, self.secret_key, self.security_token)
        try:
            return ClientOptions(
                name_server=self.name_server,
                client_ip=self.client_ip,
                unit_name=self.unit_name,
                namespace=self.namespace,
                namespace_v2=self.namespace_v2,
                credentials=credentials,
                tls=self._tls(),
                socks_proxies=self._proxies(),
                vip_channel=self.vip_channel,
                binary_headers=self.binary_headers,
                api_timeout_s=self.api_timeout_ms / 1000,
                connect_timeout_s=self.connect_timeout_ms / 1000,
            )
        except ConfigError as error:
            raise InvalidOption(f"{PREFIX}…: {error}") from None

    def __str__(self) -> str:
        return self.name_server

    def _tls(self) -> TlsOptions | bool:
        """The files are tried now, and read again when they have changed."""
        if not self.tls:
            return False
        options = TlsOptions(
            authority=self.trust_cert,
            certificate=self.cert,
            key=self.key,
            key_password=self.key_password,
            server_name=self.server_name,
            verify=self.check_server,
        )
        try:
            made_context(options)
        except ConfigError as error:
            raise InvalidOption(f"rocketmq.tls.client.…: cannot be used on this machine: {error}") from None
        return options

    def _proxies(self) -> dict[str, SocksProxy]:
        if self.proxies is None:
            return {}
        try:
            found = json.loads(self.proxies)
            return {
                str(network): SocksProxy(str(proxy["addr"]), proxy.get("username"), proxy.get("password"))
                for network, proxy in found.items()
            }
        except (ValueError, KeyError, TypeError, AttributeError):
            raise InvalidOption(
                'rocketmq.socksProxyConfig: expected JSON such as {"10.0.0.0/8": {"addr": "host:port"}}'
            ) from None


def _text(name: str, text: str) -> str:
    if not text:
        raise InvalidOption(f"{name}: is empty; set a value or remove the option")
    return text


def _flag(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise InvalidOption(f"{name}: expected true or false, not {text!r}")
    return text.lower() == "true"


def _timeout_ms(name: str, text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 9 or not 1 <= int(text) <= TIMEOUT_MS_MAX:
        raise InvalidOption(f"{name}: expected milliseconds, 1 to {TIMEOUT_MS_MAX}, not {text!r}")
    return int(text)


def _is_binary(name: str, text: str) -> bool:
    if text.upper() not in ("JSON", "ROCKETMQ"):
        raise InvalidOption(f"{name}: expected JSON or ROCKETMQ, not {text!r}")
    return text.upper() == "ROCKETMQ"


SETTINGS: tuple[tuple[str, str, Callable[[str, str], Any]], ...] = (
    ("accessKey", "access_key", _text),
    ("secretKey", "secret_key", _text),
    ("securityToken", "security_token", _text),
    ("namespace", "namespace", _text),
    ("namespaceV2", "namespace_v2", _text),
    ("useTLS", "tls", _flag),
    ("tls.client.trustCertPath", "trust_cert", _text),
    ("tls.client.certPath", "cert", _text),
    ("tls.client.keyPath", "key", _text),
    ("tls.client.keyPassword", "key_password", _text),
    ("tls.client.serverName", "server_name", _text),
    ("tls.client.authServer", "check_server", _flag),
    ("socksProxyConfig", "proxies", _text),
    ("clientIP", "client_ip", _text),
    ("unitName", "unit_name", _text),
    ("vipChannelEnabled", "vip_channel", _flag),
    ("serializeType", "binary_headers", _is_binary),
    ("mqClientApiTimeout", "api_timeout_ms", _timeout_ms),
    ("connectTimeout", "connect_timeout_ms", _timeout_ms),
)
"""Option name after `rocketmq.`, field, parser."""
_SETTINGS = {setting[0].lower(): setting for setting in SETTINGS}
_KNOWN = ", ".join(PREFIX + setting[0] for setting in SETTINGS)
