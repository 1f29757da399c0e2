"""Actions against a real broker: a preview that changes nothing, a confirmation, a line in the log."""

import html
import re
from pathlib import Path
from urllib.parse import parse_qs

import pytest

from firearrow.client.console.actions import ACTIONS
from tests.console.conftest import Site
from tests.console.running import PROOF, ConsoleProcess, Visitor, name_server
from tests.support.command_line import here


def rows(site: Site, *words: str) -> list[dict[str, object]]:
    return here(*words, name_server=name_server(site.broker)).lines


def topics(site: Site) -> set[object]:
    return {row["topic"] for row in rows(site, "topic", "list")}


@pytest.mark.parametrize("name", ACTIONS)
def test_each_action_has_a_form(visitor: Visitor, name: str) -> None:
    text = visitor.page(f"/actions/{name}")
    for field in re.findall(r'<(?:input|select|textarea) id="(field-\d+)"', text):
        assert f'<label for="{field}">' in text
    answer = visitor.post(f"/actions/{name}", data={"csrf": visitor.token(), "step": "preview"})
    assert answer.status_code == 400  # a name is missing
    assert "give a value" in answer.text


def test_topics(site: Site, visitor: Visitor) -> None:
    seen = visitor.preview("create-topic", topic="made", __queues="3")
    assert "firearrow topic create --queues=3 made" in seen.text
    assert "made" not in topics(site)
    assert "Done." in visitor.act("create-topic", topic="made", __queues="3").text
    assert "made" in topics(site)
    assert "Done." in visitor.act("change-topic", topic="made", __queues="5").text
    assert rows(site, "topic", "show", "made")[0]["brokers"][0]["writeQueues"] == 5  # type: ignore[index]
    assert "would delete topic made" in visitor.preview("delete-topic", topic="made").text
    assert "made" in topics(site)
    assert "Done." in visitor.act("delete-topic", topic="made").text
    assert "made" not in topics(site)
    log = site.console.log.read_text()
    assert "audit: user=- address=127.0.0.1 done: firearrow topic delete made" in log
    assert log.count("firearrow topic delete made") == 1  # the preview is none


def test_the_confirmation_is_for_the_values_of_the_preview(site: Site, visitor: Visitor) -> None:
    seen = visitor.preview("delete-topic", topic="payments")
    proof = re.search(r'name="proof" value="([0-9a-f]+)"', seen.text)
    assert proof is not None
    wrong = visitor.form({"topic": "orders"}) | {"step": "confirm", "proof": proof[1]}
    assert visitor.post("/actions/delete-topic", data=wrong).status_code == 400
    assert {"orders", "payments"} <= topics(site)


def test_a_confirmation_is_done_once(site: Site, visitor: Visitor) -> None:
    """A second click, or a page that is sent again, does nothing."""
    visitor.act("create-topic", topic="once", __queues="1")
    values = {"topic": "once", "body": "one"}
    proof = PROOF.search(visitor.preview("send", **values).text)
    assert proof is not None
    confirmed = visitor.form(values) | {"step": "confirm", "proof": proof[1]}
    assert "Done." in visitor.post("/actions/send", data=confirmed).text
    again = visitor.post("/actions/send", data=confirmed)
    assert again.status_code == 400
    assert "it was confirmed before" in again.text
    assert len(rows(site, "tail", "once", "--from", "start", "-e")) == 1


def test_messages_are_sent(site: Site, visitor: Visitor) -> None:
    visitor.act("create-topic", topic="sent", __queues="1")
    body = "@/etc/passwd\nfirst line\n<b>"
    assert "Done." in visitor.act("send", topic="sent", body=body, __tag="t", __key="k").text
    assert "Done." in visitor.act("send", topic="sent", body="-").text
    found = rows(site, "tail", "sent", "--from", "start", "-e")
    assert [row["body"] for row in found] == [body, "-"]
    assert found[0]["tags"] == "t"
    again = visitor.act("resend", topic="sent", id=str(found[0]["msgId"]))
    assert "Done." in again.text
    assert "would remove 3 messages" in visitor.preview("purge-topic", topic="sent").text
    assert "Done." in visitor.act("purge-topic", topic="sent").text
    assert rows(site, "tail", "sent", "--from", "start", "-e") == []


def test_a_message_is_edited_and_sent(site: Site, visitor: Visitor) -> None:
    page = visitor.page(f"/topics/orders/messages/{site.ids[4]}")
    edit = re.search(r'href="(/actions/send\?[^"]+)">Edit and send', page)
    assert edit is not None
    fields = parse_qs(html.unescape(edit[1]).partition("?")[2])
    assert fields["f.body"] == ['{"id": 4, "item": "lamp"}']
    assert (fields["f.--tag"], fields["f.--key"]) == (["new"], ["k4"])
    form = visitor.page(html.unescape(edit[1]))
    assert "&#34;item&#34;: &#34;lamp&#34;" in form


def test_groups_are_moved(site: Site, visitor: Visitor) -> None:
    moved = visitor.act("seek-group", group="billing", topic="orders", __to="end")
    assert "Done." in moved.text, moved.text[-1500:]
    assert rows(site, "group", "show", "billing")[0]["lag"] == 0
    seen = visitor.preview("seek-group", group="billing", topic="orders", __to="start")
    assert ">Repeated</th>" in seen.text
    stored = sum(row["messages"] for row in rows(site, "topic", "show", "orders")[0]["queues"])  # type: ignore[attr-defined]
    assert f"it skips 0 messages and gets {stored} again" in seen.text
    assert rows(site, "group", "show", "billing")[0]["lag"] == 0


def test_waiting_messages_are_recalled(site: Site, visitor: Visitor) -> None:
    assert "Done." in visitor.act("send", topic="orders", body="later", __delay="1h").text
    text = visitor.page("/waiting?topic=orders")
    found = re.search(r"/actions/recall\?f\.handle=([^\"]+)\"", text)
    assert found is not None
    handle = str(rows(site, "timer", "list")[0]["recallHandle"])
    done = visitor.act("recall", handle=handle).text
    assert "Done." in done, done[-900:]


def test_options_are_changed(site: Site, visitor: Visitor) -> None:
    assert "Done." in visitor.act("set-config", option="fileReservedTime=71").text
    assert rows(site, "config", "get", "fileReservedTime")[0]["value"] == "71"
    visitor.act("set-config", option="initAuthenticationUser=hidden-word")
    log = site.console.log.read_text()
    assert "config set 'initAuthenticationUser=***'" in log
    assert "hidden-word" not in log
    refused = visitor.act("set-config", option="storePathRootDir=/tmp/x")
    assert refused.status_code == 400


@pytest.mark.parametrize(
    ("action", "values"),
    [
        ("drop", {"group": "billing", "__ids": "@/etc/passwd"}),
        ("redrive", {"group": "billing", "__ids": " @/etc/passwd"}),
        ("redrive", {"group": "--filter=touch x"}),
        ("redrive", {"group": "billing", "__body": "@/etc/passwd"}),
        ("redrive", {"group": "billing", "__filter": "touch x", "__receipts": "/tmp/x", "__limit": "x"}),
        ("create-topic", {"topic": "x", "__queues": "many"}),
        ("create-topic", {"topic": "x" * 5000}),
        ("trim-topic", {"topic": "orders"}),
        ("trim-topic", {"topic": "orders", "__before": "--"}),
        ("purge-topic", {"topic": "orders", "__queue": "--"}),
        ("seek-group", {"group": "billing", "topic": "--", "__to": "end"}),
    ],
)
def test_what_cannot_be_asked(visitor: Visitor, action: str, values: dict[str, str]) -> None:
    """Files and commands of the machine least of all."""
    answer = visitor.preview(action, **values)
    assert answer.status_code == 400
    assert "root:" not in answer.text
    assert "[]" not in answer.text  # what argparse makes of --


def test_read_only(site: Site, tmp_path: Path) -> None:
    assert site.broker.name_server is not None
    with (
        ConsoleProcess(site.broker.name_server, tmp_path, "--read-only") as console,
        console.visitor() as visitor,
    ):
        for path in ("/topics", "/topics/orders", "/groups/billing", "/clients", "/waiting"):
            assert "/actions/" not in visitor.page(path)
        assert "read-only" in visitor.page("/actions/create-topic", 400)
        answer = visitor.post("/actions/create-topic", data={"f.topic": "x", "step": "confirm"})
        assert answer.status_code == 400
