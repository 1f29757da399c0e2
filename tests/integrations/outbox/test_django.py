"""The outbox of Django in a process of its own: savepoints, failed sends, two databases, checks."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from firearrow.client import ConsumeFromWhere, PullConsumer, PullConsumerOptions
from tests.integrations.conftest import unique

PROGRAM = """
import json, os, sys, time
import django
from django.conf import settings

name_server, group, topic, folder = sys.argv[1:]
databases = {
    name: {"ENGINE": "django.db.backends.sqlite3", "NAME": f"{folder}/{name}", "OPTIONS": {"timeout": 1}}
    for name in ("default", "other")
}
settings.configure(
    DATABASES=databases,
    INSTALLED_APPS=["firearrow.client.integrations.django"],
    FIREARROW={
        "NAME_SERVER": name_server,
        "PRODUCER_GROUP": group,
        "CHECKER": "firearrow.client.integrations.outbox.django.check",
    },
)
django.setup()
from django.core.management import call_command
from django.db import connections, transaction
from firearrow.client import Message, MessageRefused
from firearrow.client.integrations.django import producer
from firearrow.client.integrations.django.models import OutboxRow
from firearrow.client.integrations.outbox.decision import CLEAN_AFTER_S, KEEP_S
from firearrow.client.integrations.outbox.django import clean, send

for name in databases:
    call_command("migrate", database=name, verbosity=0)

def message(text):
    return Message(topic, text.encode())

def states(name="default"):
    return sorted(OutboxRow.objects.using(name).values_list("state", flat=True))

found = {}
try:
    send(message("no transaction"))
except transaction.TransactionManagementError as error:
    found["without"] = str(error)
with transaction.atomic():
    send(message("kept"))
    try:
        with transaction.atomic():
            send(message("savepoint"))
            raise KeyError
    except KeyError:
        pass
    try:
        send(Message(topic, b"refused", delay_s=1))
    except MessageRefused as error:
        found["refused"] = str(error)
with transaction.atomic("other"):
    send(message("other"), using="other")
with transaction.atomic():
    send(message("aborted"))
    connections["default"].cursor().execute("rollback")  # as PostgreSQL at the COMMIT, after an error that is caught
try:
    with transaction.atomic("other"):
        send(message("other, rolled back"), using="other")
        raise KeyError
except KeyError:
    pass
deadline = time.monotonic() + 60
while (states(), states("other")) != (["C", "R", "R"], ["C", "R"]) and time.monotonic() < deadline:
    time.sleep(0.05)
found |= {"default": states(), "other": states("other"), "young": clean(producer().group)}
OutboxRow.objects.update(created_s=time.time() - KEEP_S - 2 * CLEAN_AFTER_S)
found["old"] = clean(producer().group)
child = os.fork()
if child == 0:
    os._exit(0 if producer().send(message("kept")).queue_offset >= 0 else 1)
found["child"] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
print(json.dumps(found))
"""


async def test_django(name_server: str, topic: str, tmp_path: Path) -> None:
    """What was kept is delivered; the broker's checks decide what was rolled back, in the database of each."""
    group = unique("shop")
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", PROGRAM, name_server, group, topic, str(tmp_path)],
        env=os.environ, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert "transaction.atomic()" in found["without"]
    assert "delayed" in found["refused"]
    assert (found["default"], found["other"]) == (["C", "R", "R"], ["C", "R"])
    assert (found["young"], found["old"]) == (0, 3)
    assert found["child"] == 0, "a child that was forked has a producer of its own"
    bodies = set[bytes]()
    options = PullConsumerOptions(from_where=ConsumeFromWhere.FIRST_OFFSET)
    async with PullConsumer(unique("reader"), name_server=name_server, options=options) as consumer:
        consumer.subscribe(topic)
        async with asyncio.timeout(20):
            while len(bodies) < 2:
                bodies |= {message.body for message in await consumer.poll(1)}
    assert bodies == {b"kept", b"other"}
