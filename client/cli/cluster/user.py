"""Manage users and their rules: add, set, delete, list, grant, revoke and check."""

import getpass
import sys
from collections.abc import Sequence
from typing import Any

from firearrow._native.protocol.access_model import (
    Action,
    Decision,
    Resource,
    UserStatus,
    UserType,
    address_of,
    network_of,
)
from firearrow._native.protocol.policy_decision import Need, decide, refusal_text
from firearrow.client.admin_api.users import UserRecord, Users
from firearrow.client.base.errors import ConfigError
from firearrow.client.cli.command import FOUND_TROUBLE, OK, Call, Command
from firearrow.client.cli.output import titled

USER_COLUMNS = titled("broker", "user", "type", "status")
RULE_COLUMNS = titled("broker", "user", "policy", "resource", "actions", "from", "decision")
CHECK_COLUMNS = titled("broker", "allowed", "why")
NEEDS = {"send": Action.PUB, "read": Action.SUB}
"""What people ask for → what it needs; other words are Apache's names of actions."""
ANYWHERE = "127.0.0.1"


def declared() -> Command:
    """The command with its verbs."""
    command = Command("user", __doc__)
    verb = command.verb("add", add)
    verb.argument("name", help="name of the user")
    verb.argument("--super", action="store_true", help="create a super user, who may do everything")
    verb = command.verb("set", set_user)
    verb.argument("name", help="name of the user")
    verb.argument("--password", action="store_true", help="give it another password, which is asked for")
    verb.argument("--type", choices=[each.value for each in UserType], help="make it this kind of user")
    verb.argument("--status", choices=[each.value for each in UserStatus], help="let it log in, or not")
    verb = command.verb("delete", delete)
    verb.argument("name", help="name of the user").moving()
    verb = command.verb("list", list_users)
    verb.argument("name", nargs="?", help="show the rules of this user")
    verb = command.verb("grant", grant)
    verb.argument("name", help="name of the user")
    verb.argument("resource", help="Topic:NAME, Group:NAME or Cluster:NAME; NAME may end with *")
    verb.argument("actions", help="Pub, Sub, Create, Update, Delete, Get, List or All, separated by commas")
    verb.argument("--deny", action="store_true", help="deny the actions, even if a wider rule allows them")
    verb.argument("--from", dest="sources", metavar="IP,IP", help="only from these addresses or networks")
    verb = command.verb("revoke", revoke)
    verb.argument("name", help="name of the user")
    verb.argument(
        "resource", nargs="?", help="resource of the rule (default: all rules of the user)"
    ).moving()
    verb = command.verb("check", check)
    verb.argument("name", help="name of the user")
    verb.argument("what", help="send, read, or an action such as Create")
    verb.argument("resource", help="topic, or TYPE:NAME")
    verb.argument("--group", help="consumer group that reads")
    verb.argument("--from", dest="source", default=ANYWHERE, metavar="IP", help="address of the client")
    return command


def main(arguments: Sequence[str]) -> int:
    return declared().run(arguments)


async def add(call: Call) -> None:
    """Add a user. Its password is asked for, or is the first line of the standard input.

    firearrow user add app
    firearrow user add root --super < password.txt
    """
    users = Users(await call.admin())
    kind = UserType.SUPER if call.arguments.super else UserType.NORMAL
    await users.create(call.arguments.name, _password(call.arguments), kind)
    call.output.note(f"user {call.arguments.name} was added ({kind.value})")


async def set_user(call: Call) -> None:
    """Change a user: its password, its type, or whether it may log in. What is not named stays as it is.

    firearrow user set app --password
    firearrow user set app --status disable
    """
    given = call.arguments
    if not (given.password or given.type or given.status):
        raise ConfigError("name what changes: --password, --type or --status")
    await Users(await call.admin()).change(
        given.name,
        password=_password(given) if given.password else None,
        kind=UserType(given.type) if given.type else None,
        status=UserStatus(given.status) if given.status else None,
    )
    call.output.note(f"user {given.name} was changed")


async def delete(call: Call) -> None:
    """Delete a user with its rules. Requests of clients that use it are refused from then on.

    firearrow user delete app
    firearrow user delete app --yes
    """
    if call.may(f"delete the user {call.arguments.name} and its rules"):
        await Users(await call.admin()).delete(call.arguments.name)


async def list_users(call: Call) -> None:
    """List all users. With a name it lists the rules of this user.

    firearrow user list
    firearrow user list app
    """
    users = Users(await call.admin())
    if call.arguments.name is None:
        call.output.rows(USER_COLUMNS, map(_user_row, await users.list_users()))
        return
    rows = [
        {
            "broker": broker,
            "user": acl.user,
            "policy": kind.value,
            "resource": str(entry.resource),
            "actions": ",".join(action.text for action in entry.actions),
            "from": ",".join(entry.sources),
            "decision": entry.decision.value,
        }
        for broker, acl in (await users.acls(call.arguments.name)).items()
        for kind, entries in acl.policies.items()
        for entry in entries
    ]
    call.output.rows(RULE_COLUMNS, rows)


async def grant(call: Call) -> None:
    """Allow or deny actions of a user on a resource. This replaces the rule that the user has for the same resource.

    firearrow user grant app 'Topic:orders*' Pub,Sub
    firearrow user grant app Group:billing Sub --from 10.0.0.0/8
    """
    given = call.arguments
    actions = [_action(word) for word in given.actions.split(",")]
    sources = given.sources.split(",") if given.sources else []
    for source in sources:
        if network_of(source) is None:
            raise ConfigError(f"--from: {source!r} is no address and no block such as 10.0.0.0/8")
    decision = Decision.DENY if given.deny else Decision.ALLOW
    users = Users(await call.admin())
    await users.grant(given.name, _resource(given.resource), actions, decision=decision, sources=sources)


async def revoke(call: Call) -> None:
    """Delete the rule of a user for a resource. Without a resource all rules of the user are deleted.

    firearrow user revoke app 'Topic:orders*'
    firearrow user revoke app --yes
    """
    given = call.arguments
    resource = _resource(given.resource) if given.resource else None
    if call.may(f"delete {'all rules' if resource is None else f'the rule for {resource}'} of {given.name}"):
        await Users(await call.admin()).revoke(given.name, resource)


async def check(call: Call) -> int:
    """Check whether a user may do something. The exit code is 1 if a broker would refuse it.

    firearrow user check app send orders --from 10.0.0.5
    firearrow user check app read orders --group billing
    """
    given = call.arguments
    source = address_of(given.source)
    if source is None:
        raise ConfigError(f"--from: {given.source!r} is no IP address")
    action = NEEDS.get(given.what.lower()) or _action(given.what)
    needs = [Need(_resource(given.resource if ":" in given.resource else f"Topic:{given.resource}"), action)]
    if given.group:
        needs.append(Need(Resource.group(given.group), action))
    users = Users(await call.admin())
    rows = []
    for broker, user in (await users.get(given.name)).items():
        why = _fault(given.name, user)
        if not why and user is not None and user.type is not UserType.SUPER:
            acl = (await users.acls(given.name))[broker]
            for need in needs:
                verdict = decide(acl, need, source)
                if not verdict.allowed:
                    why = refusal_text(given.name, need, given.source, verdict.reason)
                    break
        rows.append({"broker": broker, "allowed": "no" if why else "yes", "why": why})
    call.output.rows(CHECK_COLUMNS, rows)
    return FOUND_TROUBLE if any(row["why"] for row in rows) else OK


def _fault(name: str, user: UserRecord | None) -> str:
    if user is None:
        return f"User:{name} is not found."
    return "" if user.status is UserStatus.ENABLE else f"User:{name} is disabled."


def _user_row(user: UserRecord) -> dict[str, str]:
    return {
        "broker": user.broker_name,
        "user": user.name,
        "type": user.type.value,
        "status": user.status.value,
    }


def _password(given: Any) -> str:  # noqa: ANN401 (argparse's values)
    """The console's `secret`. Else asked for on a terminal, or the first line of standard input: never an argument,
    which others can see."""
    if "secret" in given:
        password = str(given.secret)
    elif not sys.stdin.isatty():
        password = sys.stdin.readline().rstrip("\r\n")
    else:
        password = getpass.getpass(f"password of {given.name}: ")
        if getpass.getpass("once more: ") != password:
            raise ConfigError("the two passwords differ")
    if not password.strip():
        raise ConfigError("the password is empty: type it, or give it as the first line of standard input")
    return password


def _resource(text: str) -> Resource:
    resource = Resource.parse(text)
    if resource is None:
        raise ConfigError(f"{text!r} is no resource: write Topic:NAME, Group:NAME, Cluster:NAME or *")
    return resource


def _action(text: str) -> Action:
    action = Action.named(text.strip())
    if action is None or action in (Action.UNKNOWN, Action.ANY):
        known = ", ".join(each.text for each in Action if each not in (Action.UNKNOWN, Action.ANY))
        raise ConfigError(f"{text.strip()!r} is no action: use one of {known}")
    return action
