"""Settings: what a kombu connection's URL, `ssl` and transport options mean. ConfigError names what is wrong."""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar
from urllib.parse import unquote, urlsplit

from firearrow.client.base.errors import ConfigError
from firearrow.client.base.options import ClientOptions, Credentials, TlsOptions

PORT = 9876
SSL_OPTIONS = {
    "ca_certs": "authority",
    "certfile": "certificate",
    "keyfile": "key",
    "password": "key_password",
    "server_hostname": "server_name",
}


@dataclass(frozen=True, slots=True)
class Settings:
    """`transport_options`. Keys that are not here are kombu's or Celery's own and not looked at."""

    visibility_timeout: float = 120
    """How long a message of a worker that died stays invisible. While a worker lives, it renews this time."""
    max_deliveries: int = 16
    """A message that was delivered this often without being acknowledged becomes a dead letter."""
    queues: int = 8
    """Queues of a topic that is created; of a queue with `x-max-priority`, there is one for each priority."""
    delay_max: float = 259_200
    """The brokers' `timerMaxDelaySec`: a longer ETA takes several timers, one after the other."""
    recall_revoked: bool = True
    """A `revoke` recalls a task that waits for its ETA, where brokers allow it."""

    RANGES: ClassVar[Mapping[str, tuple[float, float]]] = {
        "visibility_timeout": (1, 259_200),
        "max_deliveries": (1, 1 << 30),
        "queues": (1, 1024),
        "delay_max": (1, 10 * 365 * 86_400),
    }

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> "Settings":
        known = {one.name: options[one.name] for one in fields(cls) if options.get(one.name) is not None}
        for name, (least, most) in cls.RANGES.items():
            value = known.get(name, least)
            if not isinstance(value, int | float) or not least <= value <= most:
                raise ConfigError(
                    f"transport option {name} must be a number from {least} to {most}, not {value!r}"
                )
        return cls(**known)


@dataclass(frozen=True, slots=True)
class Place:
    """Where to connect to and as whom: connections with equal ones share a client."""

    name_server: str
    namespace: str | None
    credentials: Credentials | None
    tls: bool | TlsOptions
    settings: Settings
    timeout_s: float

    def client_options(self) -> ClientOptions:
        return ClientOptions(
            name_server=self.name_server,
            namespace=self.namespace,
            credentials=self.credentials,
            tls=self.tls,
            connect_timeout_s=self.timeout_s,
            exception_delay_s=0.5,
        )


def place_of(connection: Any, *, tls: bool) -> Place:
    """`connection` is a kombu.Connection. `tls`: its URL begins with `rocketmqs`.

    kombu splits a URL at `;`, for failover: here these are the name servers of one cluster.
    """
    servers, namespace = [], connection.virtual_host
    for url in connection.alt or ():
        scheme, separator, rest = url.partition("://")
        parts = urlsplit("//" + (rest if separator else scheme))
        servers.append(_server(parts.hostname, parts.port))
        namespace = unquote(parts.path.strip("/")) or namespace
    if not servers:
        servers.append(_server(connection.hostname, connection.port))
    password = connection.password() if callable(connection.password) else connection.password
    namespace = (namespace or "").strip("/")
    return Place(
        name_server=";".join(dict.fromkeys(servers)),
        namespace=namespace or None,
        credentials=Credentials(connection.userid, password or "") if connection.userid else None,
        tls=_tls(connection.ssl, tls),
        settings=Settings.of(connection.transport_options),
        timeout_s=connection.connect_timeout or 5,
    )


def _server(host: str | None, port: int | None) -> str:
    name = host or "localhost"
    return f"[{name}]:{port or PORT}" if ":" in name else f"{name}:{port or PORT}"


def _tls(options: Any, wanted: bool) -> bool | TlsOptions:
    """kombu's `ssl`: True, or a dict whose keys are those of the module ssl, perhaps with the prefix `ssl_`."""
    if not isinstance(options, Mapping):
        return bool(options) or wanted
    values = {name.removeprefix("ssl_"): value for name, value in options.items() if value is not None}
    verify = values.pop("cert_reqs", ssl.CERT_REQUIRED) not in (ssl.CERT_NONE, "CERT_NONE", "none")
    unknown = values.keys() - SSL_OPTIONS
    if unknown:
        raise ConfigError(
            f"ssl: {', '.join(sorted(unknown))} is not known; use {', '.join(SSL_OPTIONS)} and cert_reqs"
        )
    return TlsOptions(verify=verify, **{SSL_OPTIONS[name]: value for name, value in values.items()})
