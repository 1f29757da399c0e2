"""Contexts: name servers and keys under a name, in `~/.config/firearrow/contexts.json`, which only its owner may read.

The name servers of a command are, in this order: `--namesrv`, the context of `--context`, those of `NAMESRV_ADDR`, the
context chosen by `firearrow context use`, and the name server on this machine.
"""

import os
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace

import orjson

from firearrow.client.base.errors import ConfigError
from firearrow.client.base.options import ClientOptions, Credentials, TlsOptions

DEFAULT_NAMESRV = "127.0.0.1:9876"
FILE_BYTES_MAX = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Where a command connects to, and with which keys."""

    namesrv: str = DEFAULT_NAMESRV
    namespace: str = ""
    access_key: str = ""
    secret_key: str = field(default="", repr=False)
    tls: bool = False
    authority: str = ""
    certificate: str = ""
    key: str = ""
    server_name: str = ""

    def client_options(self) -> ClientOptions:
        keys = Credentials(self.access_key, self.secret_key) if self.access_key else None
        tls = TlsOptions(
            authority=self.authority or None,
            certificate=self.certificate or None,
            key=self.key or None,
            server_name=self.server_name or None,
        )
        return ClientOptions(
            name_server=self.namesrv,
            namespace=self.namespace,
            credentials=keys,
            tls=self.tls and tls,
            vip_channel=False,
        )


@dataclass(frozen=True, slots=True)
class Contexts:
    """All contexts; `current`: the one that is used unless another one is named."""

    current: str = ""
    by_name: dict[str, Context] = field(default_factory=dict)


def contexts_file() -> str:
    folder = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return os.path.join(folder, "firearrow", "contexts.json")


def load_contexts() -> Contexts:
    """ConfigError: the file cannot be read."""
    path = contexts_file()
    try:
        with open(path, "rb") as file:
            text = file.read(FILE_BYTES_MAX)
    except FileNotFoundError:
        return Contexts()
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    try:
        found = orjson.loads(text)
        by_name = {str(name): Context(**values) for name, values in found["contexts"].items()}
        return Contexts(str(found["current"]), by_name)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ConfigError(f"{path} is not a file of contexts ({error}): fix it or delete it") from None


def save_contexts(contexts: Contexts) -> None:
    """Replace the file. ConfigError: it cannot be written."""
    path = contexts_file()
    values = {name: _values(context) for name, context in contexts.by_name.items()}
    text = orjson.dumps({"current": contexts.current, "contexts": values}, option=orjson.OPT_INDENT_2)
    new = f"{path}.new"
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        with suppress(FileNotFoundError):
            os.unlink(new)
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.rename(new, path)
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from None


def _values(context: Context) -> dict[str, object]:
    """Without `server_name`, which older commands do not know, unless it is set."""
    values = asdict(context)
    return values if context.server_name else {name: values[name] for name in values if name != "server_name"}


def chosen_context(name: str | None, namesrv: str | None) -> Context:
    """The context of a command with these values of `--context` and `--namesrv`. ConfigError: there is none."""
    contexts = load_contexts()
    context = contexts.by_name.get(name or contexts.current, Context())
    if name is not None and name not in contexts.by_name:
        known = ", ".join(sorted(contexts.by_name)) or "none"
        raise ConfigError(f"there is no context {name!r}; known: {known}. Add it by `firearrow context add`")
    if namesrv is not None and not namesrv.strip("; "):  # such as a variable of a script that is not set
        raise ConfigError(
            "the addresses of the name servers are empty: give HOST:PORT, or leave the option out"
        )
    if namesrv is None and name is None:
        namesrv = os.environ.get("NAMESRV_ADDR")
    return replace(context, namesrv=namesrv) if namesrv else context
