"""docs/OPTIONS.md: every option of broker, name server and client. `python -m tests.meta.options` writes it.

Defaults, ranges and meanings come from the source: the meaning is the string after an option.
"""

import ast
import dataclasses
import inspect
import itertools
import textwrap
from collections.abc import Iterable, Iterator
from enum import Enum
from pathlib import Path
from typing import Any

from firearrow.broker.base import tls
from firearrow.broker.base.config_keys import apache_keys
from firearrow.broker.base.options import INT_MAX, Options, text_of
from firearrow.broker.tables.naming_options import ACTING
from firearrow.client.base.options import (
    ClientOptions,
    PopConsumerOptions,
    ProducerOptions,
    PullConsumerOptions,
    PushConsumerOptions,
    TlsOptions,
)

OPTIONS = Path(__file__).resolve().parents[2] / "docs/OPTIONS.md"
CLIENT_KINDS = (
    ClientOptions,
    TlsOptions,
    ProducerOptions,
    PushConsumerOptions,
    PullConsumerOptions,
    PopConsumerOptions,
)
CONSUMERS = next(part for part in PushConsumerOptions.__mro__ if part in PullConsumerOptions.__mro__)
CLIENT_PARTS: tuple[tuple[str, type, type], ...] = (
    ("ClientOptions", ClientOptions, ClientOptions),
    ("TlsOptions", TlsOptions, TlsOptions),
    ("ProducerOptions", ProducerOptions, ProducerOptions),
    ("PushConsumerOptions and PullConsumerOptions", CONSUMERS, CONSUMERS),
    ("PushConsumerOptions", PushConsumerOptions, CONSUMERS),
    ("PullConsumerOptions", PullConsumerOptions, CONSUMERS),
    ("PopConsumerOptions", PopConsumerOptions, PopConsumerOptions),
)
"""Title, class, and the class whose fields are in another part."""
COMPUTED = {"brokerName": "the store's, else the host's name", "storePathRootDir": "`~/firearrow/store`"}
JAVA_PROPERTY = "com.rocketmq.remoting.frameMaxLength"
UNITS = {"s": "s", "hours": "h", "percent": "%", "bytes": "bytes"}
INTERNAL = "generated_name"
NARROW = 4096

BROKER_TEXT = """# Options

This file is generated from the source: `python -m tests.meta.options`. Each line is the key, its default, its values or
a narrow range, its unit unless it is ms, and its meaning. Keys and defaults are Apache's, but for those with *ours*.
A key with \\* can also be set while the broker runs, by `mqadmin updateBrokerConfig` or `Admin.update_broker_config`,
which update the configuration file as well; the others are read at the start.

## Broker

`firearrow broker` reads Apache's `broker.conf` (`--config FILE`), as `java.util.Properties` does; `--set KEY=VALUE`
overrides it. Keys and values must be ASCII or `\\uXXXX`.

- Other keys of Apache 5.5.0 have no effect; the log names them.
- Unknown keys are warnings in the file, and errors in `--set`.
- Keys that ask for protection which cannot take effect end the start with exit code 2, unless they, or the switch that
  they need, are `false`: also misspelled ones, and those that no server has but sound like security (`requireLogin`).
- `--check-config FILE` starts nothing: it prints the options, and every complaint on stderr; its exit code is then 2.

SIGHUP makes the broker read the file again and open the log file again; the log names the keys that need a restart.
Without `--config` and `--log-file`, or if its terminal was closed, SIGHUP stops the broker cleanly, as SIGTERM and
SIGINT do. During the stop only a second Ctrl-C ends it at once.

Some keys that Apache's broker reads again while it runs are read at the start only: `namesrvAddr`,
`messageIndexEnable`, `enableMultiDispatch`, `timerWheelEnable`, `brokerClusterName`, `brokerName`, `brokerIP1`,
`reviveQueueNum`, `flushDiskType`."""

TLS_TEXT = """`--tls-cert FILE --tls-key FILE` set `tls.server.certPath` and `tls.server.keyPath`. Every port then
accepts TLS 1.2 and 1.3 and, unless `tls.server.mode` is `enforcing`, plain connections. Certificates, keys and
authorities are read again within a second after they change; connections stay open. Apache has these keys as Java
system properties."""

NAME_SERVER_TEXT = """## Name server

`firearrow namesrv --config FILE` reads these keys, `bindAddress`, `listenPort` and `kvConfigPath`, with the rules of
the broker's file, and again on SIGHUP. `mqadmin updateNamesrvConfig` changes those with \\* until it stops. The keys of
TLS and of users are as for the broker; `users.json` and `acls.json` are in the folder of `kvConfigPath`. Apache's other
keys are listed to clients, and do nothing. The address is set by `--listen`, or by the broker's `--namesrv-listen`."""

LOG_TEXT = """## Log

Broker and name server log to stderr, or to the file of `--log-file PATH`, which is rotated at `--log-file-size` (`64M`;
units K, M, G): PATH becomes PATH.1, and `--log-files` (5) are kept. If another program rotates it, that program sends
SIGHUP. A log that cannot be written stops nothing: lines are dropped and counted.

`--log-format json` writes one object a line: `ts` (ISO 8601 with its offset from UTC), `level`, `logger`, `message`,
and `exception`. `--log-level` is `warning` unless you choose `debug`, `info` or `error`."""

CLIENT_TEXT = """## Client

Frozen dataclasses of `firearrow.client`. Names in `_s` are seconds, names with `bytes` are bytes. A value out of range
raises `ConfigError`. Options without a default are None or empty.

The options are those of Apache's Java client, with its defaults, but for `wait_when_full`, PopConsumerOptions,
`drain_s`, `in_flight_max` and `in_flight_bytes`."""


def document() -> str:
    broker = (part for title, lines in broker_lines() for part in (f"### {title}", *_texts(title), lines))
    clients = (part for title, lines in client_lines() for part in (f"### {title}", lines))
    parts = (BROKER_TEXT, *broker, NAME_SERVER_TEXT, name_server_lines(), LOG_TEXT, CLIENT_TEXT, *clients)
    return "\n\n".join(parts) + "\n"


def _texts(title: str) -> list[str]:
    return [TLS_TEXT] if title == "TLS" else []


def broker_lines() -> Iterator[tuple[str, str]]:
    """Title and lines of each group: those of the comments in the source, each sorted by key."""
    notes, apache = meanings(Options), apache_keys() | {JAVA_PROPERTY, *tls.KEYS}
    fields = {field.name: field for field in dataclasses.fields(Options)}
    for title, names in groups(Options):
        lines = {}
        for name in names:
            field = fields[name]
            key = field.metadata["key"]
            default = COMPUTED.get(key) or _code(text_of(field.default))
            star = "*" if field.metadata["change"] == "running" else ""
            ours = "" if key in apache else "ours"
            lines[key] = _line(f"`{key}`{star}", default, _broker_range(field), ours, notes[name])
        yield title, _joined(lines[key] for key in sorted(lines))


def name_server_lines() -> str:
    lines = []
    for key, option in sorted(ACTING.items()):
        star = "" if option.fixed else "*"
        lines.append(_line(f"`{key}`{star}", _code(option.default), option.meaning))
    return _joined(lines)


def client_lines() -> Iterator[tuple[str, str]]:
    """Title and lines of each kind; what push and pull consumers share is listed once."""
    for title, kind, but in CLIENT_PARTS:
        notes = meanings(kind)
        lines = []
        for field in dataclasses.fields(kind):
            if field.name not in (
                INTERNAL,
                *(each.name for each in dataclasses.fields(but) if but is not kind),
            ):
                has_default = field.default not in (dataclasses.MISSING, None)
                default = _code(_shown(field.default)) if has_default else ""
                lines.append(_line(f"`{field.name}`", default, _client_range(kind, field), notes[field.name]))
        yield title, _joined(lines)


def groups(kind: type) -> list[tuple[str, list[str]]]:
    """The comments of a class on lines of their own, each with the fields after it."""
    source = textwrap.dedent(inspect.getsource(kind))
    titles = [
        (number, line[6:]) for number, line in enumerate(source.splitlines(), 1) if line.startswith("    # ")
    ]
    [cls] = ast.parse(source).body
    assert isinstance(cls, ast.ClassDef)
    found: dict[str, list[str]] = {title[:1].upper() + title[1:]: [] for _, title in titles}
    for node in cls.body:
        if isinstance(node, ast.AnnAssign):
            title = max((number, title) for number, title in titles if number < node.lineno)[1]
            found[title[:1].upper() + title[1:]].append(ast.unparse(node.target))
    return list(found.items())


Line = tuple[str, str]
"""A key, and what is written after it."""


def _line(key: str, *cells: str) -> Line:
    """The last cell is the meaning; the others may be empty."""
    facts = ", ".join(filter(None, cells[:-1]))
    return key, f"{facts}. {cells[-1]}" if facts else cells[-1]


def _joined(lines: Iterable[Line]) -> str:
    """Keys with the same text, one after the other, share a line."""
    found: list[Line] = []
    for key, text in lines:
        if found and found[-1][1] == text:
            found[-1] = f"{found[-1][0]}, {key}", text
        else:
            found.append((key, text))
    return "\n".join(f"- {key}: {text}" for key, text in found)


def _bounds(low: int, high: int) -> str:
    """Only those that are narrow, or start late: an error names the others."""
    return f"{low:,}–{high:,}" if high <= NARROW or (low > 1 and high < INT_MAX) else ""


def meanings(kind: type) -> dict[str, str]:
    """Field → the string after it, including those of base classes."""
    found: dict[str, str] = {}
    for part in reversed(kind.__mro__[:-1]):
        [cls] = ast.parse(textwrap.dedent(inspect.getsource(part))).body
        assert isinstance(cls, ast.ClassDef)
        for field, note in itertools.pairwise(cls.body):
            if (
                isinstance(field, ast.AnnAssign)
                and isinstance(note, ast.Expr)
                and isinstance(note.value, ast.Constant)
            ):
                found[ast.unparse(field.target)] = " ".join(str(note.value.value).split())
    return found


def _broker_range(field: dataclasses.Field[Any]) -> str:
    """Its values or bounds, where they say more than its type; the unit, unless it is ms."""
    if field.type is bool:
        return ""
    if field.type is not int:
        return ", ".join(each for each in field.metadata["choices"] if each not in ("", field.default))
    unit = next((UNITS[word] for word in field.name.split("_") if word in UNITS), "")
    return f"{_bounds(field.metadata['low'], field.metadata['high'])} {unit}".strip()


def _client_range(kind: Any, field: dataclasses.Field[Any]) -> str:  # noqa: ANN401
    if isinstance(field.default, Enum):
        return ", ".join(str(each.value) for each in type(field.default) if each != field.default)
    if field.name.endswith("_s") or field.name not in getattr(kind, "RANGES", {}):
        return ""
    return _bounds(*kind.RANGES[field.name])


def _shown(default: object) -> str:
    if isinstance(default, frozenset):
        return ", ".join(map(str, sorted(default)))
    return str(default.value if isinstance(default, Enum) else default)


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


if __name__ == "__main__":
    OPTIONS.write_text(document(), "utf-8")
