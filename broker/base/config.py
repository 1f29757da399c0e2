"""Config: the current options, their file, and changes to them while the broker runs. Loop thread."""

import dataclasses
import logging
import os
from collections.abc import Callable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from firearrow.broker.base import properties
from firearrow.broker.base.options import Options, options_by_key, text_of, value_of

log = logging.getLogger("firearrow.config")


class ConfigError(ValueError):
    """An option cannot be set to this value, or not while the broker runs. The text names its key."""


def apache_keys() -> frozenset[str]:
    """Every key of Apache's broker 5.5.0, whether this broker has it or not."""
    return frozenset(resources.files("firearrow.broker.base").joinpath("apache_keys.txt").read_text().split())


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

    def update(self, pairs: Mapping[str, str]) -> None:
        """Change all of these options, or none, and write them to the config file if there is one.

        ConfigError: a key is unknown, has no effect here, or cannot change while the broker runs.
        """
        options = apply(self.options, pairs, running=True)
        self.options = options
        for changed in self._listeners:
            changed(options)
        if self._path is not None:
            _rewrite(self._path, pairs)


def apply(options: Options, pairs: Mapping[str, str], *, running: bool = False) -> Options:
    """The options with `pairs` set. ConfigError names the key."""
    known = options_by_key()
    changes: dict[str, Any] = {}
    for key, text in pairs.items():
        field = known.get(key)
        if field is None:
            raise ConfigError(f"{key} is not an option of this broker")
        if running and field.metadata["change"] != "running":
            raise ConfigError(
                f"{key} cannot change while the broker runs: set it in the config file and restart the broker"
            )
        try:
            changes[field.name] = value_of(field, text)
        except ValueError as error:
            raise ConfigError(str(error)) from None
    return dataclasses.replace(options, **changes)


def from_file(options: Options, path: Path) -> Options:
    """The options with those of an Apache `broker.conf` set. The log names the keys that have no effect.

    OSError, ConfigError; ValueError: the file is not in the properties format.
    """
    try:
        text = path.read_text("utf-8")
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not a UTF-8 file") from None
    pairs = properties.parse(text)
    ours, apache = options_by_key(), apache_keys()
    without_effect = sorted(key for key in pairs if key not in ours and key in apache)
    unknown = sorted(key for key in pairs if key not in ours and key not in apache)
    if without_effect:
        log.info("%s: these keys have no effect here: %s", path, ", ".join(without_effect))
    for key in unknown:
        log.warning("%s: unknown key %s", path, key)
    if pairs.get("brokerRole") == "SLAVE":
        raise ConfigError("brokerRole=SLAVE: this broker is always a master")
    return apply(options, {key: _expand(value) for key, value in pairs.items() if key in ours})


def _expand(value: str) -> str:
    return os.path.expandvars(value.replace("${user.home}", str(Path.home())))


def _rewrite(path: Path, pairs: Mapping[str, str]) -> None:
    merged = properties.parse(path.read_text("utf-8")) | dict(pairs)
    fresh = path.with_name(path.name + ".tmp")
    fresh.write_text(properties.format(merged), "utf-8")
    fresh.replace(path)
