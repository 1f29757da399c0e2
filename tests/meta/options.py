"""docs/OPTIONS.md: every option of broker, name server and client. `python -m tests.meta.options` writes it.

Defaults, ranges and meanings come from the source: the meaning is the string after an option.
"""

import ast
import dataclasses
import inspect
import itertools
import textwrap
from collections.abc import Iterable
from enum import Enum
from pathlib import Path
from typing import Any

from firearrow.broker.base import tls
from firearrow.broker.base.config_keys import apache_keys
from firearrow.broker.base.options import INT_MAX, NO_LIMIT, Options, text_of
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
COMPUTED = {"brokerName": "the store's, else the host's name", "storePathRootDir": "`~/firearrow/store`"}
JAVA_PROPERTY = "com.rocketmq.remoting.frameMaxLength"
UNITS = {"ms": "ms", "s": "s", "hours": "h", "percent": "%", "bytes": "bytes"}
INTERNAL = "generated_name"

BROKER_TEXT = """# Options

This file is generated from the source: `python -m tests.meta.options`.

## Broker

`firearrow broker` reads options from Apache's `broker.conf` (`--config FILE`) and from `--set KEY=VALUE`, which
overrides the file. Other keys of Apache 5.5.0 have no effect: the log names them, as a warning if their value is not
Apache's default. Unknown keys are warnings in the file and errors in `--set`. Keys that ask for protection which
cannot take effect end the start with exit code 2, unless their value, or the switch that they need, is `false`:
`authorizationEnabled` alone, `tls.enable` without another server, a certificate that is not there, a whitelist, an
audit log or `rocketmq.acl.plain.file` without users, a key that is misspelled, and one that no server has but sounds
like security (`requireLogin`, `enableSSL`): the error names the key to write. The defaults are Apache's if the table
does not say otherwise.

The keys `tls.…` are Java system properties in Apache, with the same names. `--tls-cert FILE --tls-key FILE` set
`tls.server.certPath` and `tls.server.keyPath`. Every port then accepts TLS 1.2 and 1.3 and, unless `tls.server.mode` is
`enforcing`, plain connections: the first byte decides. Certificates, keys and authorities are read again within
a second after they change; connections stay open. If the new ones do not fit together, the log reports it and the old
ones stay.
The file is read as `java.util.Properties` reads it. Keys and values must be ASCII or `\\uXXXX`; comments may have any
encoding.

The column *set* says when an option can be set. *start*: only at the start. *running*: also while the broker runs, with
`mqadmin updateBrokerConfig` or `Admin.update_broker_config`; the configuration file, if there is one, is updated, too.
*ours*: Apache does not have this option.

`firearrow broker --check-config FILE` prints the options of a start with this file and with the other arguments, as
sorted `KEY=VALUE` lines on stdout, and every complaint on stderr: values that are refused, unknown keys, keys without
effect. It starts nothing and takes no lock; the exit code is 2 if there is a complaint, else 0.

SIGHUP makes a running broker read the file again (and open the log file again). Options with *running* then have the
value that a start would give them; `--set` still overrides the file. The log has a line for each change (level info),
and one warning with the options that need a restart. If the file has an error, nothing changes, and a warning says why.
Without `--config` and `--log-file`, SIGHUP stops the broker cleanly, and so it does whenever the terminal that the
broker was started in is closed; under `nohup` it is ignored. SIGTERM and SIGINT stop it cleanly. During the stop
further signals change nothing; only a second Ctrl-C at its terminal ends it at once, as SIGKILL does.

Apache's broker accepts every key at run time, but most of those with *start* have no effect there either: it reads
them once. It does read these again, and FireArrow does not: `namesrvAddr` (every two minutes; a client could move the
broker to other name servers), `messageIndexEnable` and `enableMultiDispatch` (the store is opened with or without
index files and light queues), `timerWheelEnable` (its files and services are made at the start), `brokerClusterName`,
`brokerName` and `brokerIP1` (stored messages, receipt handles and registrations name them), `reviveQueueNum` (the
topic has that many queues), `flushDiskType` (Apache's broker then fails to store)."""

NAME_SERVER_TEXT = """## Name server

These options of the name server have an effect; `mqadmin updateNamesrvConfig` changes them until the name server stops.
All are Apache's. Apache's other options are listed to clients with their defaults, and do nothing. The address is set
by `--namesrv-listen` of `firearrow broker` and `--listen` of `firearrow namesrv`.

`firearrow namesrv --config FILE` reads these options, `bindAddress`, `listenPort` and `kvConfigPath` from a file such
as Apache's `namesrv.conf`, in the format of the broker's file and with the same warnings. SIGHUP reads it again. The
keys `tls.…`, `--tls-cert` and `--tls-key` are as for the broker. `authenticationEnabled`,
`authorizationEnabled` and the keys that go with them in the broker's table mean the same there; `users.json` and
`acls.json` are in the folder of `kvConfigPath`.

## Log

Broker and name server log to stderr, or to the file of `--log-file PATH`. The file is rotated when it has
`--log-file-size` (`64M`; units K, M, G): PATH becomes PATH.1, PATH.1 becomes PATH.2, and so on; `--log-files` (5) are
kept, PATH included. If another program rotates it, that program sends SIGHUP, and a new PATH is opened. A log that
cannot be written, as on a full disk, stops nothing: lines are dropped, counted, and the log has the count afterwards.

`--log-format json` writes one object a line: `ts` (ISO 8601 with the offset from UTC), `level`, `logger`, `message`,
and `exception` with a traceback. `--log-level` is `warning` unless you choose `debug`, `info` or `error`."""

CLIENT_TEXT = """## Client

Frozen dataclasses of `firearrow.client`. Names in `_s` are seconds, names with `bytes` are bytes. A value out of range
raises `ConfigError` when the object is made.

The options are those of Apache's Java client, with its defaults. Ours are `wait_when_full` and PopConsumerOptions.
Java does not wait for handlers when a consumer is closed (`drain_s`), and does not limit what is in flight
(`in_flight_max`, `in_flight_bytes`) by default."""


def document() -> str:
    clients = (f"### {kind.__name__}\n\n{client_table(kind)}" for kind in CLIENT_KINDS)
    context = (BROKER_TEXT, broker_table(), NAME_SERVER_TEXT, name_server_table(), CLIENT_TEXT, *clients)
    return "\n\n".join(context) + "\n"


def broker_table() -> str:
    notes, apache = meanings(Options), apache_keys() | {JAVA_PROPERTY, *tls.KEYS}
    rows = []
    for field in dataclasses.fields(Options):
        key = field.metadata["key"]
        default = COMPUTED.get(key) or _code(text_of(field.default))
        changed = field.metadata["change"] + ("" if key in apache else ", ours")
        rows.append((f"`{key}`", default, _broker_range(field), changed, notes[field.name]))
    return _table(
        ("key", "default", "range", "set", "meaning"), sorted(rows, key=lambda row: row[0].strip("`"))
    )


def name_server_table() -> str:
    rows = []
    for key, option in sorted(ACTING.items()):
        values = (
            ""
            if option.fixed
            else "true, false"
            if option.low is None
            else f"{option.low:,} to {option.high:,}"
        )
        changed = "no" if option.fixed else "running"
        rows.append((f"`{key}`", _code(option.default), values, changed, option.meaning))
    return _table(("key", "default", "range", "set", "meaning"), rows)


def client_table(kind: type) -> str:
    notes = meanings(kind)
    rows = []
    for field in dataclasses.fields(kind):
        if field.name != INTERNAL:
            default = "" if field.default is dataclasses.MISSING else _code(_shown(field.default))
            rows.append((f"`{field.name}`", default, _client_range(kind, field), notes[field.name]))
    return _table(("option", "default", "range", "meaning"), rows)


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
    if field.type is bool:
        return "true, false"
    if field.type is not int:
        return ", ".join(field.metadata["choices"])
    low, high = field.metadata["low"], field.metadata["high"]
    unit = next((f" {UNITS[word]}" for word in field.name.split("_") if word in UNITS), "")
    return (
        f"from {low:,}"
        if high in (INT_MAX, NO_LIMIT)
        else f"{low:,}"
        if low == high
        else f"{low:,} to {high:,}"
    ) + unit


def _client_range(kind: Any, field: dataclasses.Field[Any]) -> str:  # noqa: ANN401
    if isinstance(field.default, bool):
        return "True, False"
    if isinstance(field.default, Enum):
        return ", ".join(str(each.value) for each in type(field.default))
    ranges = getattr(kind, "RANGES", {})
    if field.name not in ranges:
        return ""
    least, most = ranges[field.name]
    return f"{least:,} to {most:,}"


def _shown(default: object) -> str:
    if isinstance(default, frozenset):
        return ", ".join(map(str, sorted(default)))
    return str(default.value if isinstance(default, Enum) else default)


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


if __name__ == "__main__":
    OPTIONS.write_text(document(), "utf-8")
