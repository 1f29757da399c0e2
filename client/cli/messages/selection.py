"""Selection: the messages that a command is about, by the arguments that commands and jobs of Spark share."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from firearrow._native.base.shared_arguments import shared
from firearrow.client.base.errors import ConfigError
from firearrow.client.base.times import time_ms
from firearrow.client.cli.command import Verb, count

if TYPE_CHECKING:
    from firearrow._native.store.log.received_message import ReceivedMessage
    from firearrow.client.cli.messages.message_view import Wanted
    from firearrow.client.cli.messages.queue_reader import Start

PLACE = "where to start: start, end, -10, -15m, a time or an offset"
IDS_FILE_BYTES_MAX = 64 << 20
IDS_SHOWN = 5


def select_by(verb: Verb, *, limit: str = "maximum number", limit_default: int | None = None) -> Verb:
    """The arguments of a Selection."""
    return verb.arguments(
        shared("--from", dest="start", default="start", metavar="PLACE", help=PLACE),
        shared("--to"),
        shared("--key", action="append", default=[]),
        shared("--tag", action="append", default=[]),
        shared("--grep"),
        shared("--ids", action="append", default=[]),
        (("--limit",), {"type": count, "metavar": "N", "help": limit, "default": limit_default}),
    )


@dataclass(frozen=True, slots=True)
class Selection:
    """`start`: where reading starts in each queue; `wanted`: which of what follows; `limit`: how many at most."""

    start: "Start"
    wanted: "Wanted"
    limit: int | None

    @classmethod
    def of(cls, given: Any) -> "Selection":  # noqa: ANN401 (argparse's values)
        """ConfigError: a value cannot be read."""
        # commands declare these arguments for verbs that are not called
        from firearrow.client.cli.messages.message_view import Wanted, pattern, tags_of  # noqa: PLC0415
        from firearrow.client.cli.messages.queue_reader import From, Start  # noqa: PLC0415

        start = Start.parse(given.start)
        until_ms = time_ms(given.to) - 1 if given.to is not None else 0
        since_ms = start.value if start.kind is From.TIME else 0
        if given.to is not None and until_ms < max(since_ms, 1):
            raise ConfigError(f"--to {given.to} is not after --from {given.start}")
        wanted = Wanted(
            keys=frozenset(given.key),
            grep=pattern(given.grep),
            since_ms=since_ms,
            until_ms=until_ms,
            tags=frozenset().union(*map(tags_of, given.tag)),
            ids=_ids(given.ids),
        )
        return cls(start, wanted, given.limit)

    @property
    def is_by_choice(self) -> bool:
        """Whether it is not simply all that is stored before a time."""
        from firearrow.client.cli.messages.queue_reader import From, Start  # noqa: PLC0415

        wanted = self.wanted
        chosen = wanted.keys or wanted.tags or wanted.ids or wanted.grep is not None
        return bool(chosen or self.limit is not None or self.start != Start(From.START))


class Unfound:
    """Which of the ids of a selection no message had."""

    def __init__(self, wanted: "Wanted") -> None:
        self._left = set(wanted.ids)

    def saw(self, message: "ReceivedMessage") -> None:
        from firearrow.client.cli.messages.message_view import ids_of  # noqa: PLC0415

        if self._left:
            self._left.difference_update(each.upper() for each in ids_of(message))

    def text(self) -> str:
        """Empty: all were found."""
        if not self._left:
            return ""
        shown = sorted(self._left)[:IDS_SHOWN]
        more = f" and {len(self._left) - IDS_SHOWN} more" if len(self._left) > IDS_SHOWN else ""
        return f"not found: {', '.join(shown)}{more}"


def _ids(texts: Iterable[str]) -> frozenset[str]:
    found: set[str] = set()
    for text in texts:
        words = _lines(Path(text[1:])) if text.startswith("@") else text.split(",")
        found.update(word.strip().upper() for word in words if word.strip())
    if texts and not found:
        raise ConfigError("--ids names no id")
    return frozenset(found)


def _lines(file: Path) -> list[str]:
    try:
        if file.stat().st_size > IDS_FILE_BYTES_MAX:
            raise ConfigError(f"--ids: {file} is larger than {IDS_FILE_BYTES_MAX >> 20} MiB: split it")
        return file.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--ids: cannot read {file}: {getattr(error, 'strerror', None) or error}") from None
