"""Pages that show one or a few questions of the command line. Loop thread."""

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from starlette.responses import JSONResponse, RedirectResponse, Response

from firearrow.client.admin_api.extensions import Extensions
from firearrow.client.base.errors import (
    BrokerError,
    ClientError,
    ConfigError,
    NoRoute,
    OnlyFireArrow,
    TransportError,
)
from firearrow.client.base.times import time_text
from firearrow.client.cli.cluster.log import LEVELS
from firearrow.client.cli.formats import is_system_group, members
from firearrow.client.cli.groups.dlq import RECEIPT_COLUMNS
from firearrow.client.cli.groups.group import DIFF_COLUMNS, LAG_COLUMNS, MEMBER_COLUMNS
from firearrow.client.cli.groups.group import TOPIC_COLUMNS as GROUP_TOPIC_COLUMNS
from firearrow.client.cli.output import Column, Kind, titled
from firearrow.client.cli.topics.topic import CONFIG_COLUMNS, QUEUE_COLUMNS
from firearrow.client.console.app import Handler, View, checked_form, cookie_text
from firearrow.client.console.forms import form_of
from firearrow.client.console.jobs import COLUMNS as JOB_COLUMNS
from firearrow.client.console.questions import Kept, Table
from firearrow.client.console.rendering import Curve, address, bars, curve, path, thinned
from firearrow.client.console.sessions import LoginRefused, may_watch

ROWS = 100
"""Of a table on one page."""
LIMIT = 1000
LOG_LINES = 500
DOCTOR_S = 60.0
"""For how long a visitor sees what the doctor found before."""
POINTS_MAX = 720
POP_COLUMNS = (
    *titled("topic", "broker"),
    Column("queueId", "QUEUE", Kind.COUNT),
    Column("offset", "OFFSET", Kind.COUNT),
    Column("poppedMs", "POPPED", Kind.TIME),
    Column("invisibleUntilMs", "VISIBLE AGAIN", Kind.TIME),
    Column("reconsumeTimes", "RETRIES", Kind.COUNT),
)
REFUSAL_COLUMNS = (
    Column("atMs", "LAST", Kind.TIME),
    *titled("reason", "address", "topic", "group", "broker"),
    Column("count", "TIMES", Kind.COUNT),
)
HOME_CURVES = (
    ("in.messages_per_s", "Messages in per second", Kind.COUNT),
    ("out.messages_per_s", "Messages out per second", Kind.COUNT),
    ("lag.messages", "Unread messages", Kind.COUNT),
    ("lag.ms", "Age of the oldest unread message", Kind.AGE),
)


# ---- what pages share ----


class Shown:
    """One page of a table: rows that have the words of `q` in the column `name`, and where the others are."""

    def __init__(self, view: View, table: Table, name: str) -> None:
        self.columns, self.words = table.columns, view.get("q").lower()
        rows = [row for row in table.rows if self.words in str(row.get(name, "")).lower()]
        number = view.get("page", "1")
        self.total = len(rows)
        self.pages = max((self.total + ROWS - 1) // ROWS, 1)
        self.number = min(max(int(number) if number.isdecimal() and len(number) < 7 else 1, 1), self.pages)
        self.rows = rows[(self.number - 1) * ROWS : self.number * ROWS]
        given = {key: value for key, value in view.request.query_params.items() if key != "page"}
        here = view.here
        self.before = address(here, **given, page=self.number - 1) if self.number > 1 else ""
        self.after = address(here, **given, page=self.number + 1) if self.number < self.pages else ""


async def curves(view: View, wanted: Iterable[tuple[str, str, Kind]], since: str = "-1h") -> list[Curve]:
    """The history of these series, added up over the brokers; none of Apache's."""

    async def one(name: str, title: str, kind: Kind) -> Curve | None:
        try:
            kept = await view.ask("top", since=since, series=name)
        except (OnlyFireArrow, BrokerError):
            return None
        rows = [row for row in kept.table.rows if row["series"] == name]
        loaded = address("/series", name=name, since=since)
        return curve(title, _sum([row["values"] for row in rows]), kind, loaded) if rows else None

    found = await asyncio.gather(*(one(*each) for each in wanted))
    return [each for each in found if each is not None]


def _sum(series: Sequence[Sequence[float | None]]) -> list[float | None]:
    if len(series) == 1:
        return list(series[0])
    return [
        sum(known) if (known := [value for value in values if value is not None]) else None
        for values in zip(*series, strict=False)
    ]


async def series(view: View) -> Response:
    """Numbers of one series, for the browser's curves: times in seconds, and values."""
    name, since = view.get("name"), view.get("since") or "-1h"
    kept = await view.ask("top", since=since, series=name)
    rows = [row for row in kept.table.rows if row["series"] == name]
    if not rows:
        return JSONResponse({"times": [], "values": []})
    values, first = _sum([row["values"] for row in rows]), rows[0]
    shown = thinned(values, POINTS_MAX)
    step_s = first["stepMs"] * len(values) / max(len(shown), 1) / 1000
    times = [round(first["fromMs"] / 1000 + i * step_s) for i in range(len(shown))]
    return JSONResponse({"times": times, "values": shown})


# ---- the pages ----


async def home(view: View) -> Response:
    status, shown = await asyncio.gather(view.ask("status"), curves(view, HOME_CURVES))
    rows = status.table.rows
    table = Table(status.table.columns, rows)
    largest: dict[str, dict[str, Any]] = {}
    for row in rows:
        for each in row.get("topics") or ():
            total = largest.setdefault(each["topic"], {"topic": each["topic"], "bytes": 0, "messages": 0})
            total["bytes"] += each["bytes"]
            total["messages"] += each["messages"]
    return view.page("home.html", table=table, facts=_facts(rows), curves=shown, largest=_largest(largest))


def _largest(topics: Mapping[str, dict[str, Any]]) -> Table:
    columns = (
        Column("topic", "TOPIC"),
        Column("bytes", "DISK", Kind.BYTES),
        Column("messages", "MESSAGES", Kind.COUNT),
    )
    return Table(columns, sorted(topics.values(), key=lambda row: (-row["bytes"], row["topic"]))[:10])


def _facts(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, object, Kind, str]]:
    """Title, value, kind, and the page that explains it."""

    def known(name: str) -> list[Any]:
        return [row[name] for row in rows if row.get(name) is not None]

    def total(name: str) -> float | None:
        return round(sum(found), 1) if (found := known(name)) else None

    oldest = max(
        (row for row in rows if row.get("oldestUnreadMs")), key=lambda r: r["oldestUnreadMs"], default={}
    )
    group = oldest.get("oldestUnreadGroup") or ""
    return [
        ("Messages in per second", total("inPerSecond"), Kind.COUNT, ""),
        ("Messages out per second", total("outPerSecond"), Kind.COUNT, ""),
        ("Disk used, %", max(known("diskPercent"), default=None), Kind.COUNT, ""),
        ("Disk full in", min(known("diskFullMs"), default=None), Kind.AGE, ""),
        ("Unread messages", total("unread"), Kind.COUNT, "/groups"),
        ("Oldest unread", oldest.get("oldestUnreadMs"), Kind.AGE, path("groups", group) if group else ""),
        ("Stored today", total("storedToday"), Kind.COUNT, "/topics"),
    ]


async def doctor(view: View) -> Response:
    """Looks at most once a minute for each user: it watches groups for some seconds."""
    at_s, kept = view.console.doctors.get(view.access.user, (0.0, None))
    if kept is None or time.monotonic() - at_s > DOCTOR_S or view.get("again") == "1":
        kept = await view.ask("doctor")
        if len(view.console.doctors) >= LIMIT:
            view.console.doctors.clear()
        view.console.doctors[view.access.user] = (time.monotonic(), kept)
    findings = [row for row in kept.records if row["severity"] != "NOT_CHECKED"]
    skipped = [row for row in kept.records if row["severity"] == "NOT_CHECKED"]
    template = "doctor_part.html" if view.get("part") == "1" else "doctor.html"
    return view.page(template, findings=findings, skipped=skipped, notes=kept.notes)


async def topics(view: View) -> Response:
    kept = await view.ask("topic", "list", long=True, all=view.get("all") == "1")
    return view.page("topics.html", shown=Shown(view, kept.table, "topic"), notes=kept.notes)


async def topic(view: View) -> Response:
    name = view.part("topic")
    kept, shown = await asyncio.gather(
        view.ask("topic", "show", name),
        curves(view, [(f"in:{name}", "Messages in per second, last day", Kind.COUNT)], "-1d"),
    )
    facts = kept.first
    return view.page(
        "topic.html",
        topic=name,
        facts=facts,
        settings=Table(CONFIG_COLUMNS, facts["brokers"]),
        queues=Shown(view, Table(QUEUE_COLUMNS, facts["queues"]), "broker"),
        curves=shown,
    )


async def groups(view: View) -> Response:
    kept = await view.ask("group", "list", long=True, all=view.get("all") == "1")
    return view.page("groups.html", shown=Shown(view, kept.table, "group"), notes=kept.notes)


async def group(view: View) -> Response:
    name = view.part("group")
    kept, lag, held = await asyncio.gather(
        view.ask("group", "show", name), view.ask("group", "lag", name), view.ask("group", "members", name)
    )
    facts = dict(kept.first)
    topics_read = facts.pop("topics", [])
    wanted = [
        each
        for row in topics_read[:4]
        for each in (
            (f"lag:{name}@{row['topic']}", f"Lag in {row['topic']}, last day", Kind.COUNT),
            (
                f"lagms:{name}@{row['topic']}",
                f"Age of the oldest unread in {row['topic']}, last day",
                Kind.AGE,
            ),
        )
    ]
    return view.page(
        "group.html",
        group=name,
        facts=facts,
        topics=Table(GROUP_TOPIC_COLUMNS, topics_read),
        lag=Table(LAG_COLUMNS, lag.table.rows),
        members=Table(MEMBER_COLUMNS, held.table.rows),
        notes=[*lag.notes, *held.notes],
        curves=await curves(view, wanted, "-1d"),
    )


async def compared(view: View) -> Response:
    """In what the subscriptions of the members differ, which each of them reports."""
    name = view.part("group")
    kept = await view.ask("group", "diff", name)
    return view.page("compared.html", group=name, table=kept.table, columns=DIFF_COLUMNS, notes=kept.notes)


async def producers(view: View) -> Response:
    """Who sent the newest messages of a topic."""
    name = view.part("topic")
    kept = await view.ask("topic", "producers", name)
    return view.page("producers.html", topic=name, shown=Shown(view, kept.table, "address"), notes=kept.notes)


async def member(view: View) -> Response:
    """Threads and queues of one member, which it reports itself."""
    name, client = view.part("group"), view.part("client")
    info = await view.access.admin.running_info(name, client, stacks=True)
    stacks, reported = info.get("jstack"), info.get("properties")
    facts = reported if isinstance(reported, Mapping) else {}
    return view.page(
        "member.html",
        group=name,
        client=client,
        facts={key: value for key, value in facts.items() if isinstance(value, str | int | float)},
        stacks=stacks if isinstance(stacks, str) else "",
    )


async def dead_letters(view: View) -> Response:
    kept = await view.ask("dlq", "list")
    return view.page("dead_letters.html", shown=Shown(view, kept.table, "group"), notes=kept.notes)


async def clients(view: View) -> Response:
    kept = await view.ask("clients", "list", group=view.get("group"), all=view.get("all") == "1")
    return view.page("clients.html", shown=Shown(view, kept.table, "clientId"), notes=kept.notes)


async def config(view: View) -> Response:
    kept = await view.ask("config", "get")
    changed = await _changed_options(view, {row["broker"] for row in kept.table.rows})
    only_changed = view.get("changed") == "1"
    rows = [
        {**row, "changed": None if changed is None else (row["broker"], row["key"]) in changed}
        for row in kept.table.rows
        if not only_changed or changed is None or (row["broker"], row["key"]) in changed
    ]
    shown = Shown(view, Table(kept.table.columns, rows), "key")
    return view.page("config.html", shown=shown, has_defaults=changed is not None)


async def _changed_options(view: View, brokers: set[str]) -> set[tuple[str, str]] | None:
    """Broker and key of those that differ from their defaults; None: only FireArrow's brokers report that."""
    extensions, found = Extensions(view.access.admin), set[tuple[str, str]]()
    try:
        for broker in sorted(brokers):
            found |= {(broker, key) for key in (await extensions.status(broker)).get("options", {})}
    except (OnlyFireArrow, BrokerError):
        return None
    return found


async def log(view: View) -> Response:
    """The last lines of the brokers' logs, newest first."""
    kept = await view.ask("log", lines=LOG_LINES, level=view.get("level"), broker=view.get("broker"))
    table = Table(kept.table.columns, kept.table.rows[::-1])
    return view.page("log.html", shown=Shown(view, table, "text"), levels=LEVELS)


async def jobs(view: View) -> Response:
    """Those of this visitor, and those of commands on this machine for who may watch the brokers."""
    own = Table(JOB_COLUMNS, [job.row() for job in view.console.jobs.of(view.access.user)])
    kept = Kept()
    if await may_watch(view.access):
        kept = await view.ask("jobs", "", *view.console.job_folders)
    else:
        kept.note("those of this machine are shown to users with Get on the cluster")
    return view.page("jobs.html", own=own, shown=Shown(view, kept.table, "job"), notes=kept.notes)


async def job(view: View) -> Response:
    """One job, with the receipts that it has written."""
    found = view.console.jobs.find(view.access.user, view.part("number"))
    receipts = []
    if found.question.command == "dlq":
        kept = await view.ask("dlq", "receipts", found.question.words[0])
        receipts = [row for row in kept.table.rows if row["atMs"] >= found.started_ms]
    done, total = found.kept.reached
    return view.page(
        "job.html",
        job=found,
        line=found.question.text(),
        done=done,
        total=total,
        receipts=Shown(view, Table(RECEIPT_COLUMNS, receipts[::-1]), "msgId"),
    )


async def stop_job(view: View) -> Response:
    found = view.console.jobs.find(view.access.user, view.part("number"))
    await checked_form(view)
    await view.console.jobs.stop(found)
    return RedirectResponse(f"/jobs/{found.number}", 303)


async def waiting(view: View) -> Response:
    try:
        kept, lag = await asyncio.gather(
            view.ask(
                *("timer", "list"),
                topic=view.get("topic"),
                _from=view.get("from"),
                to=view.get("to"),
                limit=LIMIT,
            ),
            view.ask("timer", "lag"),
        )
    except OnlyFireArrow as error:  # Apache's brokers report how late they are
        kept, lag = Kept(), await view.ask("timer", "lag")
        kept.note(str(error))
    times = [row["dueMs"] for row in kept.table.rows]
    begin, end = (min(times), max(times) + 1) if times else (0, 1)
    table = Table([column for column in kept.table.columns if column.name != "recallHandle"], kept.table.rows)
    return view.page(
        "waiting.html",
        shown=Shown(view, table, "topic"),
        bars=bars(times, begin, end) if times else [],
        begin=time_text(begin),
        end=time_text(end),
        lag=lag.table,
        notes=kept.notes,
    )


async def transactions(view: View) -> Response:
    discarded = view.get("discarded") == "1"
    try:
        kept = await view.ask("tx", "list", group=view.get("group"), discarded=discarded, limit=LIMIT)
    except NoRoute:  # the topic of discarded ones is created with the first of them
        kept = Kept()
    return view.page(
        "transactions.html", shown=Shown(view, kept.table, "topic"), notes=kept.notes, discarded=discarded
    )


async def ordered(view: View) -> Response:
    """Without a group: the groups to choose from."""
    if not (name := view.get("group")):
        return view.page("choose_group.html", title="Queues in order", groups=await _groups(view))
    kept = await view.ask("queue", "who", name)
    return view.page("ordered.html", group=name, shown=Shown(view, kept.table, "topic"), notes=kept.notes)


async def pop(view: View) -> Response:
    if not (name := view.get("group")):
        return view.page("choose_group.html", title="POP in flight", groups=await _groups(view))
    listing = await Extensions(view.access.admin).pop_in_flight(name, view.get("topic"), limit=LIMIT)
    table = Table(POP_COLUMNS, [members(each) for each in listing])
    notes = ["there are more"] if listing.more else []
    return view.page("pop.html", group=name, shown=Shown(view, table, "topic"), notes=notes)


async def _groups(view: View) -> list[str]:
    return sorted(name for name in await view.access.admin.groups() if not is_system_group(name))


async def users(view: View) -> Response:
    if view.console.gate.has_users is False:
        return view.page("users.html", shown=None, refusals=None)
    kept = await view.ask("user", "list")
    refusals = None
    try:
        last = (await Extensions(view.access.admin).refusals()).last
        refusals = Table(REFUSAL_COLUMNS, [members(each) for each in last])
    except (OnlyFireArrow, BrokerError):
        pass
    return view.page("users.html", shown=Shown(view, kept.table, "user"), refusals=refusals)


async def user(view: View) -> Response:
    """The rules of a user, and whether it may do something."""
    if view.console.gate.has_users is False:
        return await users(view)
    name, verdict, fault = view.part("user"), None, ""
    try:
        kept = await view.ask("user", "list", name)
    except BrokerError as error:
        if "The subject is not exist" not in error.remark:  # Apache's words, with the code of a refusal
            raise
        raise ClientError(f"there is no user {name}") from None
    if view.get("what") and view.get("resource"):
        words = (name, view.get("what"), view.get("resource"))
        from_ = view.get("from") or "127.0.0.1"
        try:
            verdict = (await view.ask("user", "check", *words, group=view.get("for"), _from=from_)).table
        except ConfigError as error:
            fault = str(error)
    return view.page("user.html", name=name, rules=kept.table, verdict=verdict, fault=fault)


# ---- signing in ----


async def sign_in(view: View) -> Response:
    if view.session is not None and view.access.user:
        return RedirectResponse("/", 303)
    return view.page("sign_in.html", next=_inside(view.get("next")), fault="")


async def signed_in(view: View) -> Response:
    """A form without a session: another site could only sign its own user in, which `_same_origin` refuses."""
    form, console = await form_of(view.request), view.console
    goal = _inside(form.get("next", ""))
    host = view.request.client.host if view.request.client is not None else ""
    try:
        access = await console.gate.log_in(form.get("user", "").strip(), form.get("password", ""), host)
    except (LoginRefused, TransportError, ClientError) as error:
        status = 401 if isinstance(error, LoginRefused) else 502
        status = 429 if "too many" in str(error) else status
        return view.page("sign_in.html", status, next=goal, fault=str(error))
    await console.sessions.end(view.request.cookies.get(console.cookie, ""))
    token, _ = await console.sessions.open(access)
    answer = RedirectResponse(goal or "/", 303)
    answer.headers["Set-Cookie"] = cookie_text(console, token)
    return answer


async def sign_out(view: View) -> Response:
    await checked_form(view)
    await view.console.sessions.end(view.request.cookies.get(view.console.cookie, ""))
    answer = RedirectResponse("/sign-in", 303)
    answer.headers["Set-Cookie"] = cookie_text(view.console, "")
    return answer


def _inside(goal: str) -> str:
    """A path of this console; "" for any other address."""
    is_path = goal.startswith("/") and not goal.startswith(("//", "/\\")) and goal.isprintable()
    return goal if is_path and "\\" not in goal else ""


PAGES: dict[str, Handler] = {
    "/": home,
    "/clients": clients,
    "/config": config,
    "/dead-letters": dead_letters,
    "/doctor": doctor,
    "/groups": groups,
    "/groups/{group}": group,
    "/groups/{group}/compared": compared,
    "/groups/{group}/members/{client:path}": member,
    "/jobs": jobs,
    "/jobs/{number}": job,
    "/log": log,
    "/ordered": ordered,
    "/pop": pop,
    "/series": series,
    "/sign-in": sign_in,
    "/topics": topics,
    "/topics/{topic}": topic,
    "/topics/{topic}/producers": producers,
    "/transactions": transactions,
    "/users": users,
    "/users/{user:path}": user,
    "/waiting": waiting,
}
FORMS: dict[str, Handler] = {"/jobs/{number}/stop": stop_job, "/sign-in": signed_in, "/sign-out": sign_out}
