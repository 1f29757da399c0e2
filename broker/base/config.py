"""Config: the current options, their file, and changes to them while the broker runs. Loop thread.

`config_keys` knows the keys that this broker does not have.
"""

import dataclasses
import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from firearrow.broker.base import properties
from firearrow.broker.base.config_keys import (
    apache_defaults,
    apache_keys,
    is_default,
    is_known,
    security_fault,
    unknown,
)
from firearrow.broker.base.options import Options, options_by_key, text_of, value_of

log = logging.getLogger("firearrow.config")


class ConfigError(ValueError):
    """An option cannot be set to this value, or not while the broker runs. The text names its key."""


class Config:
    """`options` is a frozen value. A change replaces it and calls the listeners with the new one."""

    def __init__(self, options: Options, path: Path | None = None) -> None:
        self.options = options
        self._path = path
        self._listeners: list[Callable[[Options], None]] = []

    def listen(self, changed: Callable[[Options], None]) -> None:
        """Call `changed` now, and after every change."""
        self._listeners.append(changed)
        changed(self.options)

    def properties(self) -> dict[str, str]:
        """The current values by Apache's keys."""
        return {key: text_of(getattr(self.options, field.name)) for key, field in options_by_key().items()}

    def set_port(self, port: int) -> None:
        """The port that was found for `listenPort=0`."""
        self.options = dataclasses.replace(self.options, listen_port=port)

    def update(self, pairs: Mapping[str, str]) -> None:
        """Change all of these options, or none, and write them to the config file if there is one.

        ConfigError: a key is unknown, has no effect here, or cannot change while the broker runs.
        """
        options = apply(self.options, pairs, running=True)
        self.options = options
        for changed in self._listeners:
            changed(options)
        if self._path is not None:
            try:
                _rewrite(self._path, pairs)
            except (OSError, ValueError) as error:
                log.error(
                    "%s was not updated: the change lasts until the broker stops: %s", self._path, error
                )


def apply(options: Options, pairs: Mapping[str, str], *, running: bool = False) -> Options:
    """The options with `pairs` set. ConfigError names the key."""
    known = options_by_key()
    if (fault := security_fault(pairs)) is not None:
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
    from_path = read(path) if path is not None else {}
    merged = {key: _expand(value) for key, value in (from_path | dict(pairs)).items()}
    if (fault := security_fault(merged)) is not None:
        raise ConfigError(fault)
    if merged.get("brokerRole", "").strip() == "SLAVE":
        raise ConfigError("brokerRole=SLAVE: this broker is always a master")
    ours = options_by_key()
    strange = [key for key in merged if key not in ours and not is_known(key)]
    for key in strange:
        name = unknown(key, ours.keys() | apache_keys())
        if key in pairs:
            raise ConfigError(f"{name} is not an option of this broker")
        log.warning("%s: unknown key %s", path, name)
    _report_without_effect({key: merged[key] for key in merged.keys() - ours.keys() - set(strange)})
    return apply(options, {key: value for key, value in merged.items() if key in ours})


def read(path: Path) -> dict[str, str]:
    """The pairs of a file in the properties format. OSError, ConfigError."""
    try:
        return properties.parse(path.read_bytes())
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from None


def _report_without_effect(pairs: Mapping[str, str]) -> None:
    changed = sorted(key for key, value in pairs.items() if not is_default(key, value))
    for key in changed:
        default = apache_defaults().get(key)
        log.warning("%s has no effect here%s", key, f" (Apache's default: {default})" if default else "")
    if same := sorted(pairs.keys() - set(changed)):
        log.info("these keys have no effect here: %s", ", ".join(same))


def _expand(value: str) -> str:
    if "${user.home}" in value:
        try:
            value = value.replace("${user.home}", str(Path.home()))
        except RuntimeError:
            raise ConfigError("${user.home} is unknown: set HOME, or write the path out") from None
    return os.path.expandvars(value)


def _rewrite(path: Path, pairs: Mapping[str, str]) -> None:
    merged = properties.parse(path.read_bytes()) | dict(pairs)
    fresh = path.with_name(path.name + ".tmp")
    fresh.write_text(properties.format(merged), "ascii")
    fresh.replace(path)
