"""Make a slave the master.

A running slave is named by its address, a stopped one by its store's folder. If the old master is FireArrow's and
answers, nothing is lost: it stops taking writes, the slave copies what is left, and only then takes over.
"""

import os
from collections.abc import Sequence

from firearrow.client.admin_api import roles
from firearrow.client.base.errors import ConfigError
from firearrow.client.cli.command import Call, Command, Verb

ROLES = ("ASYNC_MASTER", "SYNC_MASTER")
TARGET = "the slave: HOST:PORT, or the folder of its stopped store"


def main(arguments: Sequence[str]) -> int:
    command = Command("promote", __doc__)
    add_arguments(command.only(promote))
    return command.run(arguments)


def add_arguments(verb: Verb) -> None:
    verb.argument("broker", metavar="ADDRESS|DIR", help=TARGET)
    verb.argument("--role", choices=ROLES, help="its role from now on (default: that of its old master)")
    verb.argument(
        "--force",
        action="store_true",
        help="promote it even if its master still accepts writes, or another slave has more of the log; these messages "
        "are lost",
    )
    verb.moving()


async def promote(call: Call) -> int:
    """Make a slave the master, with its log as it is. Its old master accepts no more writes.

    firearrow promote 10.0.0.2:10911
    firearrow promote /var/lib/firearrow/store --role SYNC_MASTER
    """
    target, role = call.arguments.broker, call.arguments.role
    if not call.may(f"make the slave at {target} the master"):
        return 0
    if is_folder(target):
        forced = ["--force"] if call.arguments.force else []
        chosen = [] if role is None else ["--role", role]
        return offline("promote", [target, *chosen, "--yes", *forced])
    done = await roles.promote(await call.admin(), target, role=role, force=call.arguments.force)
    call.output.done(
        f"{target} is the {done.role} of epoch {done.epoch}, from {done.end} of the log on",
        {"broker": target, "role": done.role, "epoch": done.epoch, "end": done.end},
    )
    if not done.role_known:
        call.output.note(
            f"the role of its old master is not known, so it is {done.role}: to change it, start it again with "
            f"brokerRole={ROLES[1]} and brokerId=0"
        )
    elif role is None and done.role == ROLES[1]:
        call.output.note(
            f"it is a {done.role}, as its old master was: if it has no slave and refuses sends, set "
            "minInSyncReplicas=1 until one has joined"
        )
    if done.old_master:
        call.output.note(done.old_master)
    return 0


def is_folder(target: str) -> bool:
    """Whether it is a store's folder. ConfigError: it is neither that nor an address."""
    if os.path.isdir(target):
        return True
    if os.sep in target or not target.rpartition(":")[2].isdecimal():
        raise ConfigError(f"{target} is neither HOST:PORT of a broker nor the folder of a store")
    return False


def offline(verb: str, arguments: Sequence[str]) -> int:
    """The same verb of `firearrow store`, which works on folders."""
    from firearrow.client.cli.main import own_entries  # noqa: PLC0415 (it imports the commands by name)

    entry = own_entries().get("store")
    if entry is None:
        raise ConfigError(
            "firearrow store is not installed: a store's folder needs FireArrow's broker package"
        )
    try:
        return entry.load()([verb, *arguments])
    except SystemExit as ended:
        return int(ended.code or 0)
