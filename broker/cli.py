"""The commands `broker`, `namesrv` and `store` of `firearrow`: entry points of the group `firearrow.commands`.

Exit codes: 0 clean, 2 usage error, 3 cannot start. A command imports what it needs itself: help and errors should
appear at once.
"""

import functools
import sys
from collections.abc import Callable, Sequence

from firearrow.broker.base.arguments import (
    BrokerArguments,
    ServerArguments,
    broker_parser,
    namesrv_parser,
)
from firearrow.broker.base.errors import UsageError

CANNOT_START = 3
Command = Callable[[Sequence[str]], int]


def needs_linux(command: Command) -> Command:
    """Refuse the command in one sentence on other systems."""

    @functools.wraps(command)
    def run(arguments: Sequence[str]) -> int:
        if sys.platform == "linux":
            return command(arguments)
        text = f"firearrow {command.__name__} needs Linux; on this system FireArrow is only a client"
        print(text, file=sys.stderr)
        return CANNOT_START

    return run


@needs_linux
def broker(arguments: Sequence[str]) -> int:
    """Run the broker and a name server in one process."""
    parser = broker_parser()
    given = parser.parse_args(arguments, BrokerArguments())
    from firearrow.broker.app import commands  # noqa: PLC0415 (not needed for help)

    try:
        return commands.broker(given)
    except UsageError as error:
        parser.error(str(error))


@needs_linux
def namesrv(arguments: Sequence[str]) -> int:
    """Run the name server alone."""
    parser = namesrv_parser()
    given = parser.parse_args(arguments, ServerArguments())
    from firearrow.broker.app import commands  # noqa: PLC0415 (not needed for help)

    try:
        return commands.namesrv(given)
    except UsageError as error:
        parser.error(str(error))


@needs_linux
def store(arguments: Sequence[str]) -> int:
    """Check, repair, print, copy or promote the store of a broker."""
    from firearrow.broker.maintenance import commands  # noqa: PLC0415 (a broker does not need it)

    return commands.main(arguments)
