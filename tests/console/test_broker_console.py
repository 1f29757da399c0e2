"""`firearrow broker --console`: a child that runs only while it is visited, and ends with the broker."""

import json
import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import trustme

from firearrow.client.local_broker import LocalBrokerError
from tests.auth.secured import ROOT, ROOT_PASSWORD, options
from tests.console.running import Visitor
from tests.support.broker_process import WAYS, BrokerProcess
from tests.support.certificates import CertificateFiles
from tests.support.eventually import eventually
from tests.support.requests import send


@contextmanager
def broker_with_console(folder: Path, *arguments: str) -> Iterator[tuple[BrokerProcess, str]]:
    """The broker, and where its console can be visited."""
    with BrokerProcess(
        folder / "store",
        *arguments,
        environment={"XDG_STATE_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)},
        way=WAYS["engine"],
    ) as broker:
        assert broker.process.stdout is not None
        line = broker.process.stdout.readline()
        assert line.startswith("firearrow console: "), line
        yield broker, line.split()[-1]


def children(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def is_running(pid: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def test_the_child_runs_while_it_is_visited(tmp_path: Path) -> None:
    idle = ("--set", "consoleIdleTimeout=2000")
    with broker_with_console(tmp_path, "--console", "127.0.0.1:0", *idle) as (broker, url):
        assert children(broker.process.pid) == []
        with Visitor(url) as visitor:
            assert "<h1>Topics</h1>" in visitor.page("/topics")
            [child] = children(broker.process.pid)
            assert "<h1>Groups" not in visitor.page("/topics")
            assert children(broker.process.pid) == [child]
        eventually(lambda: children(broker.process.pid) == [], within_s=30)
        assert "<h1>Topics</h1>" in httpx.get(f"{url}/topics", timeout=30).text
        [again] = children(broker.process.pid)
        assert again != child
        assert broker.stop() == 0
        assert not is_running(again)
    assert "the console has ended" in broker.log.read_text()


def test_a_killed_broker_leaves_no_child(tmp_path: Path) -> None:
    with broker_with_console(tmp_path, "--console", "127.0.0.1:0") as (broker, url):
        assert httpx.get(f"{url}/topics", timeout=30).status_code == 200
        [child] = children(broker.process.pid)
        broker.kill()
        eventually(lambda: not is_running(child), within_s=15)


def test_a_child_that_is_killed_starts_again(tmp_path: Path) -> None:
    with broker_with_console(tmp_path, "--console", "127.0.0.1:0") as (broker, url):
        assert httpx.get(f"{url}/topics", timeout=30).status_code == 200
        [child] = children(broker.process.pid)
        os.kill(child, signal.SIGKILL)
        assert httpx.get(f"{url}/topics", timeout=30).status_code == 200
        assert "failed with exit code -9" in broker.log.read_text()


def test_with_users_it_asks_for_a_login(tmp_path: Path) -> None:
    with (
        broker_with_console(tmp_path, "--console", "0.0.0.0:0", *options()) as (_, url),
        Visitor(url.replace("0.0.0.0", "127.0.0.1")) as visitor,
    ):
        assert visitor.get("/topics").headers["location"].startswith("/sign-in")
        assert visitor.sign_in(ROOT, ROOT_PASSWORD).status_code == 303
        assert "<h1>Topics</h1>" in visitor.page("/topics")


def test_limits_of_its_options(tmp_path: Path) -> None:
    limits = ("--set", "consoleReadOnly=true", "--set", "consoleMaskBodies=true")
    with broker_with_console(tmp_path, "--console", "127.0.0.1:0", *limits) as (broker, url):
        with broker.connect() as client:
            assert send(client, "T", b"secret body").code == 0
        with Visitor(url) as visitor:
            assert "this console is read-only" in visitor.page("/actions/create-topic", 400)
            page = visitor.page("/topics/T/messages")
            assert "this console shows none" in page
            assert "secret body" not in page


def test_over_tls(tmp_path: Path) -> None:
    """With the certificates of a context, and a client's own."""
    files = CertificateFiles(tmp_path)
    context = {
        "tls": True,
        "authority": files.path("authority.pem"),
        "certificate": files.path("client.pem"),
        "key": files.path("client.key"),
    }
    folder = tmp_path / "firearrow"
    folder.mkdir()
    text = json.dumps({"current": "", "contexts": {"secure": context}})
    (folder / "contexts.json").write_text(text)
    secure = (
        *("--set", f"tls.server.certPath={files.path('server.pem')}"),
        *("--set", f"tls.server.keyPath={files.path('server.key')}"),
        *("--set", f"tls.server.trustCertPath={files.path('authority.pem')}"),
        *("--set", "tls.server.authClient=true", "--set", "tls.server.need.client.auth=require"),
    )
    with pytest.raises(LocalBrokerError, match="set consoleContext to a context"):
        BrokerProcess(tmp_path / "store", "--console", "127.0.0.1:0", *secure, way=WAYS["engine"])
    words = ("--console", "127.0.0.1:0", "--set", "consoleContext=secure", *secure)
    with broker_with_console(tmp_path, *words) as (_, url), Visitor(url) as visitor:
        assert "<h1>Topics</h1>" in visitor.page("/topics")


ENFORCING = ("--set", "tls.server.mode=enforcing", "--console", "127.0.0.1:0")


def test_a_broker_that_wants_tls(tmp_path: Path) -> None:
    """The child trusts the broker's certificate, also one that has no name of this machine."""
    files = CertificateFiles(tmp_path / "tls")
    own = files.authority.issue_cert("broker.example", key_type=trustme.KeyType.ECDSA)
    own.private_key_pem.write_to_path(files.path("server.key"))
    own.cert_chain_pems[0].write_to_path(files.path("server.pem"))
    with (
        broker_with_console(tmp_path, *ENFORCING, *files.arguments, *options()) as (broker, url),
        Visitor(url) as visitor,
    ):
        assert visitor.sign_in(ROOT, ROOT_PASSWORD).status_code == 303
        assert "<h1>Topics</h1>" in visitor.page("/topics")
        assert "Done." in visitor.act("create-topic", topic="made").text
        assert broker.stop() == 0


def test_a_certificate_that_is_made_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(LocalBrokerError, match="set consoleContext to a context"):
        BrokerProcess(
            tmp_path / "store", *ENFORCING, "--set", "tls.test.mode.enable=true", way=WAYS["engine"]
        )


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--console", "0.0.0.0:0"), "the broker has no users"),
        (("--set", "consoleListen=:::0"), "the broker has no users"),
        (("--set", "consoleListen=here"), "must be HOST:PORT"),
        (("--console", "127.0.0.1:0", "--namesrv-listen", "off"), "needs a name server"),
        (("--console", "..:0", *options()), "the console cannot listen on ..:0"),
        (("--listen", "..:0"), "'..' is not a machine's name"),
    ],
)
def test_refused_starts(tmp_path: Path, arguments: tuple[str, ...], text: str) -> None:
    with pytest.raises(LocalBrokerError, match=re.escape(text)):
        BrokerProcess(tmp_path / "store", *arguments, way=WAYS["engine"])
