"""Manage contexts: name servers and keys by name."""

import os
import sys
from collections.abc import Sequence
from dataclasses import replace

from firearrow.client.base.errors import ConfigError
from firearrow.client.cli.command import Call, Command
from firearrow.client.cli.contexts import DEFAULT_NAMESRV, Context, Contexts, load_contexts, save_contexts
from firearrow.client.cli.output import Column, titled

SECRET_CHARS_MAX = 1024
COLUMNS = (
    Column("current", ""),
    Column("name", "NAME"),
    Column("namesrv", "NAME SERVERS"),
    *titled("namespace", "accessKey", "tls"),
)


def main(arguments: Sequence[str]) -> int:
    command = Command("context", __doc__)
    command.verb("list", list_contexts)
    verb = command.verb("add", add)
    verb.argument("name", help="name of the context")
    verb.argument("--namespace", default="", help="namespace of topics and groups")
    verb.argument(
        "--access-key",
        default="",
        metavar="KEY",
        help="access key that signs requests; the secret key is asked for",
    )
    verb.argument(
        "--secret-file", metavar="FILE", help="read the secret key from this file; - is the standard input"
    )
    verb.argument("--tls", action="store_true", help="use TLS, and check the certificates of the servers")
    verb.argument(
        "--authority",
        metavar="FILE",
        help="certificate of their authority, if the system does not have it; implies --tls",
    )
    verb.argument(
        "--certificate",
        metavar="FILE",
        help="certificate of this client, if servers require one; implies --tls",
    )
    verb.argument("--key", metavar="FILE", help="private key of --certificate, if it is in another file")
    verb = command.verb("use", use)
    verb.argument("name", help="name of the context")
    verb = command.verb("remove", remove)
    verb.argument("name", help="name of the context")
    verb.moving()
    return command.run(arguments)


async def list_contexts(call: Call) -> None:
    """List all contexts. The one in use is marked with *.

    firearrow context list
    firearrow context list --json
    """
    contexts = load_contexts()
    call.output.rows(
        COLUMNS,
        (
            {
                "current": name == contexts.current if call.output.json else "*" * (name == contexts.current),
                "name": name,
                "namesrv": context.namesrv,
                "namespace": context.namespace,
                "accessKey": context.access_key,
                "tls": context.tls,
            }
            for name, context in sorted(contexts.by_name.items())
        ),
    )


async def add(call: Call) -> None:
    """Add or replace a context. The first one is used at once, others after `firearrow context use`.

    firearrow context add prod --namesrv 'ns1:9876;ns2:9876'
    firearrow context add prod --namesrv ns1:9876 --access-key app --tls
    """
    given, contexts = call.arguments, load_contexts()
    if not given.name.isprintable() or not given.name.strip():
        raise ConfigError(f"{given.name!r} cannot be a context's name")
    context = Context(
        namesrv=given.namesrv or DEFAULT_NAMESRV,
        namespace=given.namespace,
        access_key=given.access_key,
        secret_key=_secret_key(given.secret_file) if given.access_key else "",
        tls=given.tls or bool(given.authority or given.certificate),
        authority=_path(given.authority),
        certificate=_path(given.certificate),
        key=_path(given.key),
    )
    _check(context)
    current = contexts.current or given.name
    save_contexts(Contexts(current, contexts.by_name | {given.name: context}))
    call.output.done(
        f"added context {given.name}{' and used it' if current == given.name else ''}",
        {"name": given.name, "namesrv": context.namesrv, "current": current == given.name},
    )


def _path(file: str | None) -> str:
    """Absolute, since commands are called in other folders. ConfigError: it cannot be read."""
    if not file:
        return ""
    try:
        with open(file, "rb"):
            return os.path.abspath(file)
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from None


def _check(context: Context) -> None:
    """ConfigError: the name servers' addresses cannot be used, or options do not fit together."""
    from firearrow.client.remoting.channels import host_port  # noqa: PLC0415 (only for this verb)

    context.client_options()
    for address in context.namesrv.split(";"):
        host_port(address.strip())


def _secret_key(file: str | None) -> str:
    """From a file, or typed: the command line can be read by all users of the machine. ConfigError."""
    if file is None:
        if not sys.stdin.isatty():
            raise ConfigError(
                "--access-key needs --secret-file FILE, or a terminal to type the secret key on"
            )
        from getpass import getpass  # noqa: PLC0415 (only for this verb)

        return getpass("secret key: ")
    try:
        if file == "-":
            return sys.stdin.readline(SECRET_CHARS_MAX).strip()
        with open(file, encoding="utf-8") as opened:
            return opened.readline(SECRET_CHARS_MAX).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--secret-file {file} cannot be read: {error}") from None


def _known(name: str) -> Contexts:
    """All contexts. ConfigError: this one is not among them."""
    contexts = load_contexts()
    if name not in contexts.by_name:
        raise ConfigError(
            f"there is no context {name!r}; known: {', '.join(sorted(contexts.by_name)) or 'none'}"
        )
    return contexts


async def use(call: Call) -> None:
    """Use a context for all commands from now on. NAMESRV_ADDR, --context and --namesrv of a command override it.

    firearrow context use prod
    firearrow context use home
    """
    name = call.arguments.name
    save_contexts(replace(_known(name), current=name))
    call.output.done(f"using context {name}", {"name": name, "current": True})


async def remove(call: Call) -> None:
    """Remove a context with its keys. If it is the one in use, no context is in use afterwards.

    firearrow context remove prod
    firearrow context remove prod --yes
    """
    name = call.arguments.name
    contexts = _known(name)
    if not call.may(f"remove context {name}"):
        return
    left = {other: context for other, context in contexts.by_name.items() if other != name}
    save_contexts(Contexts("" if contexts.current == name else contexts.current, left))
    call.output.done(f"removed context {name}", {"name": name, "removed": True})
