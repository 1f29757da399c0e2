"""Config: the current options, their file, and changes to them while the broker runs. Loop thread.

`config_keys` knows the keys that this broker does not have.
"""

import dataclasses
import logging
import os
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from firearrow._native.base.durable_files import replace_durably
from firearrow.broker.base import properties, tls
from firearrow.broker.base.auth_options import auth_faults, switched_off
from firearrow.broker.base.config_keys import (
    apache_defaults,
    apache_keys,
    is_default,
    is_known,
    security_fault,
    security_faults,
    unknown,
)
from firearrow.broker.base.file_reads import read_regular
from firearrow.broker.base.options import Options, options_by_key, text_of, value_of

log = logging.getLogger("firearrow.config")

FILE_BYTES_MAX = 1 << 20
HIDDEN = "(hidden)"


class ConfigError(ValueError):
    """An option cannot be set to this value, or not while the broker runs. The text names its key."""


class Complaint(NamedTuple):
    """What is wrong with a configuration. `fatal`: the broker does not start with it."""

    text: str
    fatal: bool


class Judged(NamedTuple):
    """A configuration and what is wrong with it. `options` has the values that are valid."""

    options: Options
    complaints: list[Complaint]
    idle: list[str]
    """Keys of Apache's that have no effect here and ask for Apache's default, sorted."""


class Config:
    """`options` is a frozen value. A change replaces it and calls the listeners with the new one.

    `load` reads the options again as at the start; without it, `read_again` does nothing.
    """

    def __init__(
        self, options: Options, path: Path | None = None, load: Callable[[], Options] | None = None
    ) -> None:
        self.options = options
        self._path = path
        self._load = load
        self._loaded = options
        self._listeners: list[Callable[[Options], None]] = []

    def listen(self, changed: Callable[[Options], None]) -> None:
        """Call `changed` now, and after every change."""
        self._listeners.append(changed)
        changed(self.options)

    def properties(self) -> dict[str, str]:
        """The current values by Apache's keys."""
        return {key: _shown(self.options, field) for key, field in options_by_key().items()}

    def start_again(self, changes: Mapping[str, Any]) -> None:
        """Forget the listeners of a broker that has stopped, and change these fields of the options for the next."""
        self._listeners.clear()
        self.options = dataclasses.replace(self.options, **changes)

    def set_port(self, port: int) -> None:
        """The port that was found for `listenPort=0`."""
        self.options = dataclasses.replace(self.options, listen_port=port)

    def update(self, pairs: Mapping[str, str]) -> None:
        """Change all of these options, or none, and write them to the config file if there is one.

        ConfigError: a key is unknown, has no effect here, or cannot change while the broker runs.
        """
        self._replace(apply(self.options, pairs, running=True))
        if self._path is not None:
            try:
                _rewrite(self._path, pairs)
            except (OSError, ValueError) as error:
                log.error(
                    "%s was not updated: the change lasts until the broker stops: %s", self._path, error
                )

    def read_again(self) -> None:
        """As `load_again`, then `take`."""
        self.take(self.load_again())

    def load_again(self) -> Options | None:
        """What the file states now; None if it cannot be used, which is logged. Any thread."""
        try:
            return None if self._load is None else self._load()
        except (OSError, ValueError) as error:
            report_unread(error)
            return None

    def take(self, loaded: Options | None) -> None:
        """Change to these options, as far as they can change while the broker runs. The log states what changes, and
        what needs a restart. None: nothing changes."""
        if loaded is None:
            return
        changes: dict[str, Any] = {}
        restart = []
        for key, field in options_by_key().items():
            value = getattr(loaded, field.name)
            if field.metadata["change"] != "running":
                if value != getattr(self._loaded, field.name):
                    restart.append(key)
            elif value != (current := getattr(self.options, field.name)):
                changes[field.name] = value
                log.info("%s=%s, it was %s", key, text_of(value), text_of(current))
        report_restart("broker", restart)
        if changes:
            self._replace(dataclasses.replace(self.options, **changes))

    def _replace(self, options: Options) -> None:
        self.options = options
        for changed in self._listeners:
            changed(options)


def report_unread(error: Exception) -> None:
    """Log why the configuration stays as it is."""
    log.warning("the configuration was not read again, nothing has changed: %s", error)


def report_restart(server: str, keys: Collection[str]) -> None:
    """Log which options in the file count from the next start on."""
    if keys:
        log.warning("restart the %s to change %s", server, ", ".join(sorted(keys)))


def _shown(options: Options, field: dataclasses.Field[Any]) -> str:
    """The option's value as Java prints it; of a secret, only whether it is set."""
    text = text_of(getattr(options, field.name))
    return HIDDEN if text and field.metadata["secret"] else text


def apply(options: Options, pairs: Mapping[str, str], *, running: bool = False) -> Options:
    """The options with `pairs` set. ConfigError names the key."""
    known = options_by_key()
    if (fault := security_fault(pairs, known)) is not None:
        raise ConfigError(fault)
    changes: dict[str, Any] = {}
    for key, text in pairs.items():
        field = known.get(key)
        if field is None:
            if key in apache_keys():
                raise ConfigError(f"{key} has no effect in this broker")
            raise ConfigError(f"{unknown(key, known)} is not an option of this broker")
        if running and field.metadata["change"] != "running":
            if text != text_of(getattr(options, field.name)):
                raise ConfigError(
                    f"{key} cannot change while the broker runs: set it in the config file and restart the broker"
                )
            continue
        try:
            changes[field.name] = value_of(field, text)
        except ValueError as error:
            raise ConfigError(str(error)) from None
    return dataclasses.replace(options, **changes)


def from_file(options: Options, path: Path) -> Options:
    """The options with those of an Apache `broker.conf` set, as `configured` does."""
    return configured(options, path, {})


def configured(options: Options, path: Path | None, pairs: Mapping[str, str]) -> Options:
    """The options with those of an Apache `broker.conf` set, and then `pairs` (`--set`).

    Keys of Apache's that have no effect here are accepted, and the log names them: at level warning if they ask
    for something else than Apache's default. Unknown keys are errors in `pairs`, warnings in the file.
    OSError, ConfigError; ValueError: the file is not in the properties format.
    """
    judged = judge(options, path, pairs)
    for complaint in judged.complaints:
        if complaint.fatal:
            raise ConfigError(complaint.text)
        log.warning("%s", complaint.text)
    if judged.idle:
        log.info("these keys have no effect here: %s", ", ".join(judged.idle))
    return judged.options


def judge(options: Options, path: Path | None, pairs: Mapping[str, str]) -> Judged:
    """The options with those of the file and then `pairs` set, and every complaint about them, the most important
    first. OSError, ConfigError: the file cannot be read."""
    complaints: list[Complaint] = []
    merged: dict[str, str] = {}
    for key, text in ((read(path) if path is not None else {}) | dict(pairs)).items():
        try:
            merged[key] = _expand(text)
        except ConfigError as error:
            complaints.append(Complaint(str(error), fatal=True))
    ours = options_by_key()
    refused = security_faults(merged, ours)
    complaints += [Complaint(fault, fatal=True) for fault in refused.values()]
    complaints += _unknown_keys(path, [key for key in merged if key not in refused], pairs)
    judged = ours.keys() | refused.keys()
    foreign = {key: text for key, text in merged.items() if key not in judged and is_known(key)}
    changed = sorted(key for key, text in foreign.items() if not is_default(key, text))
    complaints += [Complaint(_without_effect(key), fatal=False) for key in changed]
    values: dict[str, Any] = {}
    for key in (key for key in merged if key in ours):
        try:
            values[ours[key].name] = value_of(ours[key], merged[key])
        except ValueError as error:
            complaints.append(Complaint(str(error), fatal=True))
    judged_options = dataclasses.replace(options, **values)
    if (fault := tls.fault_of(tls_pairs(judged_options))) is not None:
        complaints.append(Complaint(fault, fatal=True))
    off = switched_off(merged)
    complaints += [Complaint(fault, fatal=True) for fault in auth_faults(judged_options, off=off)]
    complaints += [Complaint(fault, fatal=True) for fault in _role_faults(judged_options)]
    return Judged(judged_options, complaints, sorted(foreign.keys() - set(changed)))


def _role_faults(options: Options) -> Iterator[str]:
    """What a slave needs."""
    if options.is_slave and options.broker_id <= 0:
        yield "brokerRole=SLAVE needs a brokerId above 0: set one that no other broker of this brokerName has"


def outgoing_fault(options: Options) -> str | None:
    """What is wrong with TLS to other servers once all options are known."""
    if not (options.tls_outgoing or options.tls_outgoing_too):
        return None
    if options.name_servers or options.is_slave or options.controller_mode:
        return None
    if tls.settings_of(tls_pairs(options)).listens:  # it does not look safer than it is
        return None
    key = "tls.enable" if options.tls_outgoing else "useTLS"
    return (
        f"{key}=true has no effect without namesrvAddr: it is about connections to other servers; for those of clients "
        "set tls.server.certPath and tls.server.keyPath"
    )


def tls_pairs(options: Options) -> dict[str, str]:
    """The options of TLS by their keys."""
    known = options_by_key()
    return {key: text_of(getattr(options, known[key].name)) for key in tls.KEYS}


def _unknown_keys(path: Path | None, keys: Iterable[str], pairs: Mapping[str, str]) -> Iterator[Complaint]:
    ours = options_by_key()
    for key in keys:
        if key not in ours and not is_known(key):
            name = unknown(key, ours.keys() | apache_keys())
            if key in pairs:
                yield Complaint(f"{name} is not an option of this broker", fatal=True)
            else:
                yield Complaint(f"{path}: unknown key {name}", fatal=False)


def _without_effect(key: str) -> str:
    default = apache_defaults().get(key)
    return f"{key} has no effect here" + (f" (Apache's default: {default})" if default else "")


def read(path: Path) -> dict[str, str]:
    """The pairs of a file in the properties format. OSError, ConfigError."""
    try:
        return properties.parse(path.read_bytes())
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from None


def _expand(value: str) -> str:
    if "${user.home}" in value:
        try:
            value = value.replace("${user.home}", str(Path.home()))
        except RuntimeError:
            raise ConfigError("${user.home} is unknown: set HOME, or write the path out") from None
    return os.path.expandvars(value)


def _rewrite(path: Path, pairs: Mapping[str, str]) -> None:
    """Durably, and with the permissions that it has: it may hold secrets."""
    merged = properties.parse(read_regular(path, FILE_BYTES_MAX)) | dict(pairs)
    mode = stat.S_IMODE(path.stat().st_mode)
    replace_durably(os.path.realpath(path), properties.format(merged).encode("ascii"), mode=mode)
