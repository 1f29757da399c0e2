"""Actions: what changes something, by verbs of the command line: a form, a preview, a confirmation, a line in the log.

A preview is the verb with `--dry-run`, the action is the same one with `--yes`. The confirmation proves that this
session has seen the preview of exactly these values. Loop thread.
"""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from starlette.responses import RedirectResponse, Response

from firearrow.client.base.errors import ConfigError, OnlyFireArrow, RocketMQError
from firearrow.client.console.app import Handler, View, checked_form
from firearrow.client.console.jobs import run
from firearrow.client.console.questions import EDITED, Kept, Question, Value, ask, declared, parsed
from firearrow.client.console.rendering import visible

log = logging.getLogger("firearrow.console")

PROOF, STEP, FIELD = "proof", "step", "f."
CHOSEN, IDS = "chosen", "--ids"
"""A field of forms that choose messages by boxes, and what the boxes name."""
BODY = "body"
BODY_BYTES_MAX = 4 << 20
SECRETS = ("password", "secret", "credential", "authenticationuser")
"""Parts of the names of options whose values no log may have."""


class Field(NamedTuple):
    """`name`: the option or word of the verb. `choices`: none means any text. `is_flag`: on or off."""

    name: str
    label: str
    help: str
    choices: tuple[str, ...] = ()
    is_flag: bool = False
    is_word: bool = False
    is_large: bool = False
    is_secret: bool = False
    hint: str = ""
    is_required: bool = False


@dataclass(frozen=True, slots=True)
class Action:
    """A verb with the words and options that the console offers. `previews`: it has `--dry-run`. `is_dangerous`: it
    deletes or skips something. `is_job`: it may take long. `secret`: it needs a password, or the
    option that it takes one."""

    title: str
    command: str
    verb: str
    words: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    previews: bool = True
    is_dangerous: bool = False
    is_job: bool = False
    secret: str = ""


CHANGED = ("--property", "--remove-property")
PASSWORD, NEEDED = "password", "needed"
SELECTION = ("--from", "--to", "--key", "--tag", "--ids", "--limit")
ACTIONS = {
    "create-topic": Action(
        "Create a topic", "topic", "create", ("topic",), ("--queues", "--perm", "--type", "--cluster"), False
    ),
    "change-topic": Action(
        "Change a topic",
        "topic",
        "set",
        ("topic",),
        ("--queues", "--read-queues", "--perm", "--type", "--attribute"),
    ),
    "trim-topic": Action(
        "Remove old messages",
        "topic",
        "trim",
        ("topic",),
        ("--before", "--offset", "--queue"),
        is_dangerous=True,
    ),
    "purge-topic": Action(
        "Remove all messages", "topic", "purge", ("topic",), ("--queue",), is_dangerous=True
    ),
    "delete-topic": Action(
        "Delete a topic", "topic", "delete", ("topic",), ("--cluster",), is_dangerous=True
    ),
    "send": Action(
        "Send a message",
        "send",
        "",
        ("topic",),
        ("--tag", "--key", "--property", "--shard", "--delay"),
        False,
    ),
    "seek-group": Action(
        "Move a group",
        "group",
        "seek",
        ("group", "topic"),
        ("--to", "--offset", "--queue"),
        is_dangerous=True,
    ),
    "pause-group": Action("Pause a group", "group", "pause", ("group",), ("--topic", "--resume")),
    "delete-group": Action(
        "Delete a group", "group", "delete", ("group",), ("--keep-offsets", "--topics"), is_dangerous=True
    ),
    "redrive": Action(
        "Send dead letters again",
        "dlq",
        "redrive",
        ("group",),
        (*SELECTION, "--rate", "--to-topic", "--retry-topic", "--again", EDITED, *CHANGED),
        is_job=True,
    ),
    "drop": Action(
        "Drop dead letters",
        "dlq",
        "drop",
        ("group",),
        (*SELECTION, "--redriven", "--mark"),
        is_dangerous=True,
        is_job=True,
    ),
    "resend": Action("Send a message again", "message", "resend", ("topic", "id"), ("--group", "--client")),
    "recall": Action("Recall a message", "timer", "recall", ("handle",), (), is_dangerous=True),
    "ask-transaction": Action("Ask for a transaction again", "tx", "ask", ("id",)),
    "commit": Action("Commit a transaction", "tx", "commit", ("id",), (), is_dangerous=True),
    "roll-back": Action("Roll a transaction back", "tx", "rollback", ("id",), (), is_dangerous=True),
    "close-client": Action("Close a client", "clients", "close", ("client",), (), is_dangerous=True),
    "set-config": Action("Change an option", "config", "set", ("option",), ("--broker",)),
    "unlock-queue": Action("Unlock a queue", "queue", "unlock", ("group", "topic", "queue"), ("--broker",)),
    "park-head": Action(
        "Park the message at the head of a queue",
        "queue",
        "park",
        ("group", "topic", "queue"),
        ("--broker",),
        is_dangerous=True,
    ),
    "add-user": Action("Add a user", "user", "add", ("name",), ("--super",), False, secret=NEEDED),
    "set-user": Action(
        "Change a user", "user", "set", ("name",), ("--type", "--status"), False, True, secret="--password"
    ),
    "grant": Action(
        "Grant a right", "user", "grant", ("name", "resource", "actions"), ("--deny", "--from"), False
    ),
    "revoke": Action("Revoke a right", "user", "revoke", ("name", "resource"), (), True, True),
    "delete-user": Action("Delete a user", "user", "delete", ("name",), (), True, True),
}
ONLY_FIREARROW = ("trim-topic", "purge-topic", "close-client", "unlock-queue", "park-head")
"""Actions that Apache's brokers cannot do."""
OPTIONAL_WORDS = {("seek-group", "topic"), ("revoke", "resource")}


def fields_of(name: str, action: Action) -> list[Field]:
    """The verb's own names, helps and choices."""
    verb = next(
        each
        for each in declared(action.command).verbs()
        if not action.verb or each.prog == f"firearrow {action.command} {action.verb}"
    )
    known = {
        each.option_strings[0] if each.option_strings else each.dest: each for each in verb.parser()._actions
    }
    found = []
    for each in (*action.words, *action.options):
        known_as = known[each]
        found.append(
            Field(
                each,
                each.lstrip("-").replace("-", " ").capitalize(),
                (known_as.help or "").replace("%%", "%"),
                tuple(map(str, known_as.choices or ())),
                is_flag=known_as.nargs == 0,
                is_word=each in action.words,
                is_large=each == EDITED,
                is_required=each in action.words and (name, each) not in OPTIONAL_WORDS,
                hint=str(known_as.metavar or "") if known_as.option_strings else "",
            )
        )
    if action.command == "send":
        found.append(Field(BODY, "Body", "text of the message", is_large=True))
    if action.secret:
        is_needed = action.secret == NEEDED
        help_ = "" if is_needed else "a new one, or empty: it stays as it is"
        found.append(Field(PASSWORD, "Password", help_, is_secret=True, is_required=is_needed))
    return found


def question_of(name: str, values: Mapping[str, str]) -> Question:
    """ConfigError: a field is missing."""
    action = ACTIONS[name]
    options: dict[str, Value] = {}
    words: list[str] = []
    for field in fields_of(name, action):
        value = values.get(field.name, "")
        if field.name == BODY or field.is_secret:
            continue
        if field.is_word:
            text = value.strip()
            if not text and field.is_required:
                raise ConfigError(f"{field.label}: give a value")
            words += [text] if text else []
        elif field.is_flag:
            options[field.name] = value == "1"
        elif field.is_large:
            options[field.name] = value.replace("\r\n", "\n")
        elif field.name in ("--key", *CHANGED, "--attribute", "--to-topic", "--tag") and "\n" in value:
            options[field.name] = [line.strip() for line in value.splitlines() if line.strip()]
        else:
            options[field.name] = value.strip()
    body = None
    if action.command == "send":
        body = values.get(BODY, "").replace("\r\n", "\n").encode()
        if len(body) > BODY_BYTES_MAX:
            raise ConfigError(f"body: at most {BODY_BYTES_MAX:,} bytes")
    secret = values.get(PASSWORD) if action.secret else None
    if action.secret == NEEDED and not secret:
        raise ConfigError("Password: give a value")
    if secret and action.secret != NEEDED:
        options[action.secret] = True
    return Question(action.command, action.verb, options, tuple(words), body, secret or None)


async def form(view: View) -> Response:
    """An empty form, or with the values of the address."""
    name = _known(view)
    query = view.request.query_params
    given = {key.removeprefix(FIELD): ",".join(query.getlist(key)) for key in query}
    if view.get(CHOSEN) and not given.get(IDS):
        raise ConfigError("choose dead letters first: mark the boxes in front of them")
    return _form_page(view, name, given)


def _known(view: View) -> str:
    if view.console.read_only:
        raise ConfigError("this console is read-only, by --read-only or its broker's consoleReadOnly")
    name = view.part("action")
    if name not in ACTIONS:
        raise ConfigError(f"there is no action {name}")
    if view.console.is_apache and name in ONLY_FIREARROW:
        raise OnlyFireArrow("these brokers")
    return name


def _form_page(view: View, name: str, values: Mapping[str, str], fault: str = "") -> Response:
    action = ACTIONS[name]
    return view.page(
        "action.html",
        400 if fault else 200,
        name=name,
        action=action,
        fields=fields_of(name, action),
        given=values,
        fault=fault,
        step="form",
    )


async def act(view: View) -> Response:
    """The preview, or the action that was previewed."""
    name = _known(view)
    sent = await checked_form(view)
    values = {key.removeprefix(FIELD): value for key, value in sent.items() if key.startswith(FIELD)}
    assert view.session is not None
    try:
        question = question_of(name, values)
        parsed(question)
        text = _signed(question)
        is_confirmed = sent.get(STEP) == "confirm"
        if is_confirmed:
            view.session.confirm(text, sent.get(PROOF, ""))
        else:
            kept = await _preview(view, name, question)
    except RocketMQError as error:
        return _form_page(view, name, values, str(error))
    if is_confirmed:
        shared = view.access.admin.shared
        shared.clear()
        try:
            return await _do(view, name, question)
        finally:
            shared.clear()
    return view.page(
        "action.html",
        name=name,
        action=ACTIONS[name],
        fields=fields_of(name, ACTIONS[name]),
        given=values,
        kept=kept,
        line=question.text(),
        fault="",
        proof=view.session.proof(text),
        step="preview",
    )


def _signed(question: Question) -> str:
    return "\0".join(
        (
            question.command,
            *question.arguments(),
            "" if question.body is None else question.body.hex(),
            question.secret or "",
        )
    )


async def _preview(view: View, name: str, question: Question) -> Kept:
    if not ACTIONS[name].previews:
        return Kept()
    dry = replace(question, options={**question.options, "--dry-run": True})
    return await ask(dry, view.access.context, view.access.admin)


async def _do(view: View, name: str, question: Question) -> Response:
    client = view.request.client
    who = f"user={_line(view.access.user) or '-'} address={client.host if client is not None else '-'}"
    line, action = question.text(), ACTIONS[name]
    logged = _logged(question)
    if action.previews:
        question = replace(question, options={**question.options, "--yes": True})
    if action.is_job:
        job = view.console.jobs.start(view.access.user, action.title, question)
        log.info("audit: %s job %d starts: %s", who, job.number, logged)
        work = ask(question, view.access.context, view.access.admin, job.kept)
        job.task = asyncio.create_task(run(job, work, f"{who} job {job.number}", logged))
        return RedirectResponse(f"/jobs/{job.number}", 303)
    fault, kept = "", Kept()
    try:
        kept = await ask(question, view.access.context, view.access.admin)
    except RocketMQError as error:
        fault = str(error)
    result = "failed" if fault else "done" if kept.code == 0 else f"exit code {kept.code}"
    log.info("audit: %s %s: %s", who, result, logged)
    return view.page(
        "action.html",
        400 if fault else 200,
        name=name,
        action=action,
        fields=[],
        given={},
        kept=kept,
        line=line,
        fault=fault,
        step="done",
    )


def _logged(question: Question) -> str:
    """The command line on one line, without bodies and the values of options that are secret."""

    def word(text: str) -> str:
        name, equals, _ = text.partition("=")
        is_secret = equals and any(part in name.lower() for part in SECRETS)
        return f"{name}=***" if is_secret else text

    options = {name: "***" if name == EDITED and value else value for name, value in question.options.items()}
    kept = replace(question, options=options, words=tuple(map(word, question.words)))
    return _line(kept.text())


def _line(text: str) -> str:
    """On one line: another one in the log would look like one of the console's."""
    return visible(text).replace("\n", "\\n")


PAGES: dict[str, Handler] = {"/actions/{action}": form}
FORMS: dict[str, Handler] = {"/actions/{action}": act}
