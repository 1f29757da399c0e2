"""A console in a process of its own, a visitor, and data that its pages show."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx

from firearrow.client import blocking
from firearrow.client.base.message import Message
from tests.support.broker_process import BrokerProcess

HOSTILE = (
    "<script>document.title='hacked'</script>",
    '"><img src=x onerror="document.title=1">',
    "'-alert(1)-'",
    "{{ 7 * 7 }}{% raw %}",
    "javascript:alert(1)",
    "</textarea></pre></td><svg onload=alert(1)>",
    "\u202egnp.exe\u0000\u001b[31m",
    "<a href='/' hx-get='/topics' hx-trigger='load'>x</a>",
    "%3Cscript%3E&lt;script&gt;",
    "<!--><style>*{display:none}</style>",
)
"""Strings that a message may have, and that no page may take for markup."""
TOKEN = re.compile(r'name="csrf" value="([0-9a-f]+)"')
PROOF = re.compile(r'name="proof" value="([0-9a-f]+)"')


class ConsoleProcess:
    """`firearrow console` on a free port; `url`: where it listens. Its log is `log`."""

    def __init__(self, name_server: tuple[str, int], folder: Path, *arguments: str) -> None:
        self.log = folder / "console.log"
        words = ["--namesrv", "{}:{}".format(*name_server), "--listen", "127.0.0.1:0", *arguments]
        environment = os.environ | {"XDG_CONFIG_HOME": str(folder), "XDG_STATE_HOME": str(folder)}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "firearrow.client.console", *words],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=environment,
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith("firearrow console: "), (line, self.log.read_text())
        self.url = line.split()[-1]

    def visitor(self) -> "Visitor":
        return Visitor(self.url)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


class Visitor(httpx.Client):
    """A browser without JavaScript: it keeps cookies and follows no redirects by itself."""

    def __init__(self, url: str, own_address: str | None = None) -> None:
        transport = httpx.HTTPTransport(local_address=own_address)
        super().__init__(base_url=url, timeout=30, transport=transport)

    def page(self, path: str, status: int = 200) -> str:
        answer = self.get(path)
        assert answer.status_code == status, (path, answer.status_code, answer.text[-2000:])
        return answer.text

    def token(self) -> str:
        found = TOKEN.search(self.page("/actions/create-topic"))
        assert found is not None
        return found[1]

    def sign_in(self, user: str, password: str) -> httpx.Response:
        return self.post("/sign-in", data={"user": user, "password": password, "next": "/topics"})

    def preview(self, action: str, **values: str) -> httpx.Response:
        """`values`: fields by name, `__` for leading `--`, and `_` for `-`."""
        return self.post(f"/actions/{action}", data=self.form(values) | {"step": "preview"})

    def act(self, action: str, **values: str) -> httpx.Response:
        """Preview and confirm."""
        seen = self.preview(action, **values)
        assert seen.status_code == 200, seen.text[-1500:]
        proof = PROOF.search(seen.text)
        assert proof is not None, seen.text[-1500:]
        confirmed = self.form(values) | {"step": "confirm", "proof": proof[1]}
        return self.post(f"/actions/{action}", data=confirmed)

    def form(self, values: dict[str, str]) -> dict[str, str]:
        return self.fields(values) | {"csrf": self.token()}

    @staticmethod
    def fields(values: dict[str, str]) -> dict[str, str]:
        return {
            f"f.--{name[2:].replace('_', '-')}" if name.startswith("__") else f"f.{name}": value
            for name, value in values.items()
        }


def name_server(broker: BrokerProcess) -> str:
    assert broker.name_server is not None
    return "{}:{}".format(*broker.name_server)


def fill(broker: BrokerProcess) -> list[str]:
    """Topics and groups with messages, hostile ones among them; the ids of those of topic `orders`."""
    where = name_server(broker)
    ids = []
    with blocking.Admin(name_server=where) as admin:
        for topic in ("orders", "payments"):
            admin.create_topic(topic, 4)
        admin.create_group("billing")
    with blocking.Producer("console-tests", name_server=where) as producer:
        for number in range(20):
            message = Message(
                "orders", b'{"id": %d, "item": "lamp"}' % number, tags="new", keys=[f"k{number}"]
            )
            ids.append(producer.send(message).message_id)
            time.sleep(0.002)  # their times give their order over the queues
        for text in HOSTILE:
            clean = "".join(char if char.isprintable() else "?" for char in text)
            message = Message(
                "payments",
                text.encode(),
                tags=clean[:60],
                keys=[clean.replace(" ", "_")],
                properties={"note": clean},
            )
            ids.append(producer.send(message).message_id)
        producer.send(Message("payments", bytes(range(256)), keys=["binary"]))
    return ids
