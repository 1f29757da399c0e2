"""Edits: what of a message is changed before it is sent again: by options, a command, or in an editor."""

import asyncio
import base64
import binascii
import os
import shlex
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from firearrow._native.protocol.name_rules import BROKER_OWN, RETRIED
from firearrow.client.base.errors import ConfigError, MessageRefused
from firearrow.client.base.message import Message, Property
from firearrow.client.cli.command import Verb
from firearrow.client.cli.formats import pairs

BODY_BYTES_MAX = 4 << 20
FILTER_TIMEOUT_S = 60.0
FIXED = BROKER_OWN | RETRIED | {Property.UNIQUE_KEY, Property.WAIT}
"""Properties that brokers set, and those by which a letter is known."""


def edit_by(verb: Verb) -> Verb:
    """The arguments of Edits."""
    verb.argument("--body", metavar="BODY", help="new body of one letter: text, or @FILE")
    verb.argument(
        "--filter",
        metavar="COMMAND",
        help="shell command that gets each body on its input and prints the new one",
    )
    verb.argument(
        "--property",
        action="append",
        default=[],
        metavar="K=V",
        help="set a property, TAGS and KEYS among them; can be repeated",
    )
    verb.argument(
        "--remove-property",
        action="append",
        default=[],
        metavar="K",
        help="remove a property; can be repeated",
    )
    return verb.argument(
        "--edit", action="store_true", help="edit each letter in $VISUAL or $EDITOR; an empty file skips it"
    )


class Skipped(Exception):
    """The editor was left with an empty file: this letter is not sent."""


@dataclass(frozen=True, slots=True)
class Edits:
    """`body` is for one letter only. `editor`: the command of the editor; None: none is opened."""

    body: bytes | None = None
    command: str | None = None
    properties: dict[str, str] = field(default_factory=dict)
    removed: tuple[str, ...] = ()
    editor: str | None = None

    @classmethod
    def of(cls, given: Any) -> "Edits":  # noqa: ANN401 (argparse's values)
        """ConfigError: they contradict each other, or name a property that is not the user's."""
        if given.body is not None and given.filter is not None:
            raise ConfigError("give --body or --filter, not both")
        changed = pairs(given.property)
        for name in (*changed, *given.remove_property):
            if name in FIXED:
                raise ConfigError(f"property {name} is set by brokers and clients: it cannot be changed")
        for name, value in changed.items():
            if not value:
                raise ConfigError(f"property {name}: an empty value is none; --remove-property removes it")
        editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
        return cls(
            _given_body(given.body),
            given.filter,
            changed,
            tuple(given.remove_property),
            editor if given.edit else None,
        )

    async def apply(self, message: Message) -> None:
        """Change the message. MessageRefused: it cannot be changed so; Skipped."""
        if self.body is not None:
            message.body = self.body
        if self.command is not None:
            message.body = await asyncio.to_thread(_filtered, self.command, message.body)
        for name in self.removed:
            _put(message, name, None)
        for name, value in self.properties.items():
            _put(message, name, value)
        if self.editor is not None:
            await asyncio.to_thread(_edit, self.editor, message)


def _given_body(text: str | None) -> bytes | None:
    if text is None or not text.startswith("@"):
        return None if text is None else os.fsencode(text)
    try:
        with open(text[1:], "rb") as file:
            body = file.read(BODY_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"cannot read {text[1:]}: {error.strerror}") from None
    if len(body) > BODY_BYTES_MAX:
        raise ConfigError(f"the body has over {BODY_BYTES_MAX} bytes, the most that a message may have")
    return body


def _put(message: Message, name: str, value: str | None) -> None:
    """None: remove it."""
    match name:
        case Property.TAGS:
            message.tags = value
        case Property.KEYS:
            message.keys = tuple((value or "").split())
        case Property.SHARDING_KEY:
            message.sharding_key = value
        case _ if value is None:
            message.properties.pop(name, None)
        case _:
            message.properties[name] = value


def _filtered(command: str, body: bytes) -> bytes:
    try:
        done = subprocess.run(
            command, shell=True, input=body, capture_output=True, timeout=FILTER_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MessageRefused(f"--filter: {error}") from None
    if done.returncode:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise MessageRefused(
            f"--filter ended with exit code {done.returncode}: {lines[-1] if lines else 'no output'}"
        )
    if len(done.stdout) > BODY_BYTES_MAX:
        raise MessageRefused(
            f"--filter printed over {BODY_BYTES_MAX} bytes, the most that a message may have"
        )
    return done.stdout


# ---- in an editor ----


def _edit(editor: str, message: Message) -> None:
    text = _as_text(message)
    with tempfile.TemporaryDirectory(prefix="firearrow-") as folder:  # only its owner can read it
        file = Path(folder) / "message.json"
        file.write_bytes(text)
        try:
            code = subprocess.run([*shlex.split(editor), str(file)], check=False).returncode
            changed = file.read_bytes()
        except (OSError, ValueError) as error:
            raise MessageRefused(f"--edit: cannot run {editor}: {error}") from None
    if code:
        raise MessageRefused(f"--edit: {editor} ended with exit code {code}")
    if not changed.strip():
        raise Skipped
    if changed != text:
        _from_text(message, changed)


def _as_text(message: Message) -> bytes:
    shown: dict[str, Any] = {
        "topic": message.topic,
        "tags": message.tags,
        "keys": list(message.keys),
        "properties": message.properties,
    }
    try:
        shown["body"] = message.body.decode()
    except UnicodeDecodeError:
        shown |= {"body": base64.b64encode(message.body).decode(), "bodyEncoding": "base64"}
    return orjson.dumps(shown, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def _from_text(message: Message, text: bytes) -> None:
    try:
        edited = orjson.loads(text)
        taken: Callable[[str], Any] = edited.__getitem__
        topic, tags, keys, properties, body = map(taken, ("topic", "tags", "keys", "properties", "body"))
        valid = isinstance(topic, str) and isinstance(tags, str | None) and isinstance(body, str)
        texts = [*keys, *properties, *properties.values()]
        if not valid or not all(isinstance(each, str) for each in texts):
            raise ValueError("a member has another type than before")
        encoding = edited.get("bodyEncoding")
        message.body = base64.b64decode(body, validate=True) if encoding == "base64" else body.encode()
    except (ValueError, TypeError, KeyError, AttributeError, binascii.Error) as error:
        raise MessageRefused(f"--edit: the file cannot be read: {error}") from None
    if fixed := sorted(FIXED & (properties.keys() - message.properties.keys())):
        raise MessageRefused(
            f"--edit: property {fixed[0]} is set by brokers and clients: it cannot be changed"
        )
    message.topic, message.tags, message.keys = topic, tags or None, tuple(keys)
    message.properties.clear()
    message.properties.update(properties)
