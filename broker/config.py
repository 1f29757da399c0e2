"""Config: the options in force, where they came from, and how they change while the broker runs."""

import dataclasses
import logging
import os
from collections.abc import Callable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from firearrow.broker import properties
from firearrow.broker.options import Options, options_by_key, text_of, value_of

log = logging.getLogger("firearrow.config")


class ConfigError(ValueError):
    """A key cannot be set so; the text names it."""


def apache_keys() -> frozenset[str]:
    """Every key of Apache's broker 5.5.0, ours or not."""
    return frozenset(resources.files("firearrow.broker").joinpath("apache_keys.txt").read_text().split())


class Config:
    """`options` is a frozen value that is replaced as a whole; listeners hear of the new one."""

    def __init__(self, options: Options, path: Path | None = None) -> None:
        self.options = options
        self._path = path
        self._listeners: list[Callable[[Options], None]] = []

    def listen(self, changed: Callable[[Options], None]) -> None:
        self._listeners.append(changed)
        changed(self.options)

    def properties(self) -> dict[str, str]:
        """Apache's keys and the values in force."""
        return {key: text_of(getattr(self.options, field.name)) for key, field in options_by_key().items()}

    def update(self, pairs: Mapping[str, str]) -> None:
        """Change options of the running broker, all or none, and keep them in the config file if there is one.

        ConfigError for a key that is unknown, has no effect here, or may not change while running.
        """
        options = apply(self.options, pairs, running=True)
        self.options = options
        for changed in self._listeners:
            changed(options)
        if self._path is not None:
            _rewrite(self._path, pairs)


def apply(options: Options, pairs: Mapping[str, str], *, running: bool = False) -> Options:
    known = options_by_key()
    changes: dict[str, Any] = {}
    for key, text in pairs.items():
        field = known.get(key)
        if field is None:
            raise ConfigError(f"{key} is not an option of this broker")
        if running and field.metadata["change"] != "running":
            raise ConfigError(
                f"{key} cannot change while the broker runs: set it in the config file and start again"
            )
        try:
            changes[field.name] = value_of(field, text)
        except ValueError as error:
            raise ConfigError(str(error)) from None
    return dataclasses.replace(options, **changes)


def from_file(options: Options, path: Path) -> Options:
    """Options of an Apache `broker.conf`: what we have takes effect; the rest is named in the log.

    OSError, ConfigError, or ValueError for a file that is no properties text.
    """
    try:
        text = path.read_text("utf-8")
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is no UTF-8 text") from None
    pairs = properties.parse(text)
    ours, apache = options_by_key(), apache_keys()
    without_effect = sorted(key for key in pairs if key not in ours and key in apache)
    unknown = sorted(key for key in pairs if key not in ours and key not in apache)
    if without_effect:
        log.info("%s: without effect here: %s", path, ", ".join(without_effect))
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
