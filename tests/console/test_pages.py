"""The pages, as a browser without JavaScript gets them from a console of a broker without users."""

import os
import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest

from firearrow.client import blocking
from firearrow.client.base.message import Message
from firearrow.client.console.app import CSP, NAV
from tests.console.conftest import Site
from tests.console.running import HOSTILE, ConsoleProcess, Visitor, name_server
from tests.support.command_line import here

PAGES = [
    *(href for _, href in NAV),
    "/topics/orders",
    "/topics/orders/messages",
    "/groups/billing",
    "/dead-letters/billing",
    "/topics/orders/producers",
    "/groups/billing/compared",
    "/log?level=info",
    "/jobs",
    "/ordered?group=billing",
    "/pop?group=billing",
    "/transactions?discarded=1",
    "/config?changed=1",
    "/topics?all=1",
    "/topics?base=a&self=b&view=c&name=d",
    "/users/any",
    "/actions/create-topic",
    "/sign-in",
]
FIRST_PAGE_BYTES = 60_000
VOID = {"meta", "link", "input", "img", "br", "hr", "rect", "polyline", "path"}


class Elements(HTMLParser):
    """The elements and attributes of a page, as a browser would see them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in self.open:
            while self.open.pop() != tag:
                pass


@pytest.mark.parametrize("path", PAGES)
def test_pages(visitor: Visitor, path: str) -> None:
    text = visitor.page(path)
    assert "<h1>" in text
    page = Elements(text)
    assert page.open == [], path
    for tag, attributes in page.found:
        assert not [name for name in attributes if name.startswith("on") or name == "style"], (
            tag,
            attributes,
        )
        assert tag != "style"
        assert tag != "script" or str(attributes["src"]).startswith("/static/")
        if tag == "a" and attributes.get("href"):
            assert str(attributes["href"]).startswith(("/", "#")), attributes


def test_headers(visitor: Visitor) -> None:
    for path in ("/topics", "/nothing", "/static/console.css"):
        headers = visitor.get(path).headers
        assert headers["content-security-policy"] == CSP
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "same-origin"
    assert "'unsafe" not in CSP
    assert visitor.head("/topics/orders/live").status_code == 200
    assert visitor.get("/topics").status_code == 200  # on the same connection
    cookie = httpx.get(f"{visitor.base_url}/topics").headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie


def test_links_of_pages_lead_somewhere(visitor: Visitor) -> None:
    """Every link of every page, but for those of single messages."""
    hrefs = {
        str(attributes["href"])
        for path in PAGES
        for tag, attributes in Elements(visitor.page(path)).found
        if tag == "a" and str(attributes.get("href", "")).startswith("/")
    }
    followed = [each for each in sorted(hrefs) if "/live" not in each and "/messages/" not in each]
    assert len(followed) > 30
    assert not [each for each in followed if visitor.get(each).status_code not in (200, 303)]


def test_the_console_shows_what_the_command_line_shows(site: Site, visitor: Visitor) -> None:
    where = "{}:{}".format(*site.broker.name_server or ())
    rows = here("topic", "list", "--long", name_server=where).rows
    text = visitor.page("/topics")
    for row in rows:
        assert f">{row['topic']}</a>" in text
        assert f">{row['messages']:,}</td>" in text


def test_messages_newest_first(site: Site, visitor: Visitor) -> None:
    text = visitor.page("/topics/orders/messages?limit=5")
    shown = re.findall(r'/messages/([0-9A-F]{32})"', text)
    assert shown == site.ids[19:14:-1]


def test_searches(site: Site, visitor: Visitor) -> None:
    def found(query: str) -> list[str]:
        return re.findall(r'/messages/([0-9A-F]{32})"', visitor.page(f"/topics/orders/messages?{query}"))

    assert found("key=k7") == [site.ids[7]]
    assert found("text=%22id%22%3A+13") == [site.ids[13]]
    assert found("text=(.*)*") == []  # a text, not a pattern
    assert found("tag=other") == []
    assert found("json=id%3D13") == [site.ids[13]]
    assert found("json=item%3Dlamp&from=start&limit=2") == site.ids[:2]
    assert found("json=item.0%3Dl") == []
    assert found("tag=new&from=start&limit=3") == site.ids[:3]
    assert found("sql=" + quote("TAGS = 'new'") + "&from=start") == site.ids[:20]
    assert found("property=KEYS%3Dk4") == [site.ids[4]]
    where = "{}:{}".format(*site.broker.name_server or ())
    rows = here("tail", "orders", "--from", "start", "-e", name_server=where).lines
    assert set(found("queue=0")) == {row["msgId"] for row in rows if row["queueId"] == 0}
    assert set(found("from=3")) == {row["msgId"] for row in rows if row["offset"] >= 3}  # of each queue
    assert found("from=-1h&to=-30m") == []
    answer = visitor.get(f"/topics/orders/messages?id={site.ids[3]}")
    assert answer.headers["location"] == f"/topics/orders/messages/{site.ids[3]}"
    for wrong in ("queue=x", "limit=100000", "from=yesterday", "property=x", "json=x", "tag=a&sql=b"):
        assert "cannot be asked" in visitor.page(f"/topics/orders/messages?{wrong}", 400)


def test_one_message(site: Site, visitor: Visitor) -> None:
    page = f"/topics/orders/messages/{site.ids[2]}"
    text = visitor.page(page)
    assert "&#34;item&#34;: &#34;lamp&#34;" in text
    assert ">stored</td>" in text
    assert "7b 22 69 64" in visitor.page(f"{page}?decode=hex")
    body = visitor.get(f"/topics/orders/bodies/{site.ids[2]}")
    assert body.content == b'{"id": 2, "item": "lamp"}'
    assert body.headers["content-disposition"].startswith("attachment")
    assert "no message" in visitor.page("/topics/orders/messages/7F000001000000000000000000000000", 404)


def test_deep_bodies(site: Site, visitor: Visitor) -> None:
    """JSON that can be read, but not written, is shown as text, and hides no other message from a search."""
    deep = b'{"a": ' * 300 + b"1" + b"}" * 300
    where = name_server(site.broker)
    with blocking.Producer("deep", name_server=where) as producer:
        name = producer.send(Message("deep", deep)).message_id
        producer.send(Message("deep", b'{"a": 1}'))
    assert "shown as text" in visitor.page(f"/topics/deep/messages/{name}")
    assert "1 messages." in visitor.page("/topics/deep/messages?json=a%3D1")
    rows = here("tail", "deep", "--from", "start", "-e", "--decode", "json", name_server=where).lines
    assert sorted(str(row["body"]) for row in rows) == [deep.decode(), "{'a': 1}"]


def test_hostile_messages_are_text(site: Site, visitor: Visitor) -> None:
    """Tags, keys, properties and bodies, in every page that shows them."""
    pages = ["/topics/payments/messages", "/topics/payments/messages?from=start"]
    pages += [f"/topics/payments/messages/{name}" for name in site.ids[20:]]
    pages += [f"/topics/payments/messages?text={quote(text)}" for text in HOSTILE if "\0" not in text]
    pages += [f"/topics?q={quote(text)}" for text in HOSTILE]
    pages += [f"/topics/{quote(text, safe='')}/messages?key={quote(text)}" for text in HOSTILE]
    pages += [f"/actions/create-topic?f.topic={quote(text)}" for text in HOSTILE]
    for path in pages:
        text = visitor.get(path).text
        page = Elements(text)
        names = {tag for tag, _ in page.found}
        assert not names & {"img", "style", "iframe", "object"}, path
        assert not [each for tag, each in page.found if tag == "svg" and "onload" in each], path
        assert all("src" in each for tag, each in page.found if tag == "script"), path
        assert not [each for _, each in page.found if any(name.startswith("on") for name in each)], path
        assert not [each for _, each in page.found if str(each.get("hx-get", "/")).startswith("/topics?")], (
            path
        )
        if "?" not in path:  # fields keep what was typed
            assert "\u202e" not in text, path
            assert "\x1b" not in text, path
    shown = visitor.page("/topics/payments/messages")
    assert "&lt;script&gt;document.title=&#39;hacked&#39;&lt;/script&gt;" in shown


def test_bodies_of_a_schema(site: Site, tmp_path: Path) -> None:
    """Avro and MessagePack: by choice, and by themselves where the console has the topic's schema."""
    msgpack = pytest.importorskip("msgpack")
    (tmp_path / "item.avsc").write_text(
        '{"type": "record", "name": "Item", "fields": [{"name": "lamp", "type": "long"}]}'
    )
    with blocking.Producer("formats", name_server=name_server(site.broker)) as producer:
        avro = producer.send(Message("avro", b"\x54", keys=["a"])).message_id
        packed = producer.send(Message("packed", msgpack.packb({"lamp": "<b>"}))).message_id
    assert site.broker.name_server is not None
    schema = f"avro=avro:{tmp_path}/item.avsc"
    with (
        ConsoleProcess(site.broker.name_server, tmp_path, "--schema", schema) as console,
        console.visitor() as it,
    ):
        assert "&#34;lamp&#34;: 42" in it.page(f"/topics/avro/messages/{avro}")
        assert "&#34;lamp&#34;:42" in it.page("/topics/avro/messages")
        assert "54" in it.page(f"/topics/avro/messages/{avro}?decode=hex")
        shown = it.page(f"/topics/packed/messages/{packed}?decode=msgpack")
        assert "&#34;lamp&#34;: &#34;&lt;b&gt;&#34;" in shown
        for name in (f"avro:{tmp_path}/item.avsc", "protobuf:/etc/passwd:x", "schema"):
            assert "lamp&#34;: " not in it.page(f"/topics/packed/messages/{packed}?decode={name}")


def test_a_first_page_is_small(visitor: Visitor) -> None:
    """As a browser gets it: compressed, with all that it loads."""
    size = 0
    for path in ["/", *re.findall(r'(?:src|href)="(/static/[^"]+)"', visitor.page("/"))]:
        with visitor.stream("GET", path, headers={"Accept-Encoding": "gzip"}) as answer:
            size += sum(map(len, answer.iter_raw())) + len(str(answer.headers))
    assert size < FIRST_PAGE_BYTES


def test_memory_and_cpu(site: Site, visitor: Visitor) -> None:
    """CPU, because the machine may have other work."""
    process = Path(f"/proc/{site.console.process.pid}")
    found = re.search(r"VmRSS:\s+(\d+) kB", (process / "status").read_text())
    assert found is not None
    assert int(found[1]) < 60 << 10

    def cpu_s() -> float:
        fields = (process / "stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    began = cpu_s()
    for _ in range(20):
        visitor.page("/topics")
    assert (cpu_s() - began) / 20 < 0.05


def test_large_messages_are_not_held_for_their_rows(site: Site, visitor: Visitor) -> None:
    """The newest are shown first, so all of them are read before; only what is shown of them is kept."""
    body = b"large" * 700_000
    with blocking.Producer("large", name_server=name_server(site.broker)) as producer:
        for _ in range(12):
            producer.send(Message("large", body))
    process = Path(f"/proc/{site.console.process.pid}")
    (process / "clear_refs").write_text("5")  # the highest until now counts from here
    assert "12 messages." in visitor.page("/topics/large/messages")
    found = re.search(r"VmHWM:\s+(\d+) kB", (process / "status").read_text())
    assert found is not None
    assert int(found[1]) < 75 << 10


def test_producers_are_those_who_sent_the_newest_messages(site: Site, visitor: Visitor) -> None:
    with blocking.Producer("shop", name_server=name_server(site.broker)) as producer:
        producer.send(Message("payments", b"one more"))
        text = visitor.page("/topics/payments/producers")
        assert ">shop</td>" in text
    assert text.count("<tr><td") == 2  # with the one that has sent before
    assert ">shop</td>" not in visitor.page("/topics/payments/producers")


def test_curves_have_numbers(visitor: Visitor) -> None:
    answer = visitor.get("/series?name=in.messages_per_s").json()
    assert len(answer["times"]) == len(answer["values"])
    assert visitor.get("/series?name=none").json() == {"times": [], "values": []}
    assert visitor.get("/series?name=in.messages_per_s&since=").json().keys() == answer.keys()


def test_errors_are_pages(visitor: Visitor) -> None:
    assert "There is no such topic" in visitor.page("/topics/absent", 404)
    assert "there is no group absent" in visitor.page("/groups/absent", 404)
    assert "<h1>There is no such page</h1>" in visitor.page("/absent", 404)
    assert "<h1>" in visitor.page("/static/absent.js", 404)
    assert "<h1>" in visitor.post("/topics").text
    assert visitor.request("DELETE", "/topics/orders").status_code == 405
    assert "Traceback" not in visitor.page("/topics/absent", 404)


def test_other_names_of_this_machine_are_refused(visitor: Visitor) -> None:
    """A site whose name was made to lead to 127.0.0.1 could read an open console."""
    for host in ("evil.example", "evil.example:8088", "127.0.0.1.evil.example"):
        assert visitor.get("/topics", headers={"Host": host}).status_code == 421
    for host in ("localhost:1", "127.0.0.1", "[::1]:80"):
        assert visitor.get("/topics", headers={"Host": host}).status_code == 200


def test_without_users_nobody_signs_in(visitor: Visitor) -> None:
    """The log would name whom a visitor chose to be, and an address that others reach would be open to them."""
    answer = visitor.sign_in("root", "any")
    assert answer.status_code == 401
    assert "the brokers have no users" in answer.text


def test_pages_are_no_parts_of_other_sites(visitor: Visitor) -> None:
    """A site's image would open a session for each request, and ask the brokers."""
    of_site = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}
    answer = visitor.get("/doctor?again=1", headers=of_site)
    assert answer.status_code == 403
    assert "set-cookie" not in answer.headers
    assert visitor.post("/actions/send", headers=of_site | {"Sec-Fetch-Mode": "navigate"}).status_code == 403
    assert visitor.get("/topics", headers=of_site | {"Sec-Fetch-Mode": "navigate"}).status_code == 200


def test_names_that_look_quoted(visitor: Visitor) -> None:
    """Names may have percent signs, and what follows is not quoted: each link of a page leads to its topic."""
    visitor.act("create-topic", topic="a%41|b", __queues="2")
    for path in ("/topics/a%2541%7Cb?live=1", "/topics/a%2541%7Cb/messages?limit=1", "/topics/a%2541%7Cb"):
        text = visitor.page(path)
        links = re.findall(r'(?:href|hx-get)="(/topics/[^"]+)"', text)
        assert {each.partition("?")[0].split("/")[2] for each in links} == {"a%2541%7Cb"}, path
    visitor.act("delete-topic", topic="a%41|b")
