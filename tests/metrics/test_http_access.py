"""Who may see the metrics: HTTP speaks TLS where the other ports do, and needs a login where there are users."""

import http.client
import socket
import ssl
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.auth.secured import CLUSTER, ROOT, ROOT_PASSWORD, SignedSocket, create_user, grant, options
from tests.support.broker_process import BrokerProcess
from tests.support.certificates import CertificateFiles

ANYWHERE = "--http", "0.0.0.0:0"


@contextmanager
def serving(store: Path, *arguments: str) -> Iterator[tuple[BrokerProcess, str, int]]:
    """A broker, the scheme of its HTTP, and the port."""
    with BrokerProcess(store, *arguments) as broker:
        assert broker.process.stdout is not None
        line = broker.process.stdout.readline()
        scheme, _, address = (
            line.removeprefix("firearrow metrics: ").removesuffix("/metrics\n").partition("://")
        )
        yield broker, scheme, int(address.rpartition(":")[2])
        assert broker.stop() == 0


def get(port: int, path: str, keys: tuple[str, str] | None = None, tls: ssl.SSLContext | None = None) -> int:
    """The status."""
    connection = (
        http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        if tls is None
        else http.client.HTTPSConnection("127.0.0.1", port, timeout=20, context=tls)
    )
    text = "" if keys is None else "Basic " + b64encode(":".join(keys).encode()).decode()
    try:
        connection.request("GET", path, headers={"Authorization": text} if text else {})
        answer = connection.getresponse()
        if answer.status == 401:
            assert answer.headers["WWW-Authenticate"].startswith("Basic ")
        return answer.status
    finally:
        connection.close()


def test_users_log_in_to_http_that_others_reach(tmp_path: Path) -> None:
    root = ROOT, ROOT_PASSWORD
    with serving(tmp_path / "store", *ANYWHERE, *options()) as (broker, scheme, port):
        assert scheme == "http"
        with SignedSocket(broker.address) as admin:
            for name in ("watcher", "app"):
                create_user(admin, name, "word1234")
            grant(admin, "watcher", f"Cluster:{CLUSTER}", "Get")
            grant(admin, "app", "Topic:a", "Pub")
        for page in ("/metrics", "/status"):
            assert get(port, page) == 401
            assert get(port, page, root) == 200
            assert get(port, page, ("watcher", "word1234")) == 200
            assert get(port, page, ("app", "word1234")) == 401
            assert get(port, page, (ROOT, "guess")) == 401
            assert get(port, page, ("stranger", "")) == 401
        assert [get(port, page) for page in ("/healthz", "/readyz", "/")] == [200] * 3
        for _ in range(40):
            assert get(port, "/metrics", ("stranger", "guess")) == 401
        assert get(port, "/metrics", root) == 200  # logged in from there before
        assert "can be read by others on the way" in broker.log.read_text()


def test_accounts_with_admin_log_in(tmp_path: Path) -> None:
    accounts = tmp_path / "plain_acl.yml"
    accounts.write_text(
        "accounts:\n- accessKey: operator\n  secretKey: 12345678\n  admin: true\n"
        "- accessKey: program\n  secretKey: 12345678\n"
    )
    acl = "--set", "aclEnable=true", "--set", f"rocketmq.acl.plain.file={accounts}"
    with serving(tmp_path / "store", *ANYWHERE, *acl) as (_, _, port):
        assert get(port, "/status") == 401
        assert get(port, "/status", ("operator", "12345678")) == 200
        assert get(port, "/status", ("program", "12345678")) == 401
        assert get(port, "/status", ("operator", "12345679")) == 401


@pytest.mark.parametrize("users", [False, True])
def test_on_loopback_everyone_may(tmp_path: Path, users: bool) -> None:
    with serving(tmp_path / "store", "--http", "127.0.0.1:0", *(options() if users else ())) as (_, _, port):
        assert get(port, "/status") == 200


def test_on_loopback_others_log_in_that_a_proxy_reports(tmp_path: Path) -> None:
    trusted = "--set", "proxyProtocolTrustedAddresses=127.0.0.1"
    arguments = "--http", "127.0.0.1:0", *trusted, *options()
    keys = b64encode(f"{ROOT}:{ROOT_PASSWORD}".encode()).decode()
    with serving(tmp_path / "store", *arguments) as (_, _, port):
        for source, login, status in (
            ("192.0.2.7", "", 401),
            ("192.0.2.7", f"Authorization: Basic {keys}\r\n", 200),
            ("127.0.0.9", "", 200),
        ):
            with socket.create_connection(("127.0.0.1", port), 20) as client:
                head = f"PROXY TCP4 {source} 127.0.0.1 4711 80\r\nGET /status HTTP/1.1\r\nHost: x\r\n{login}"
                client.sendall(f"{head}Connection: close\r\n\r\n".encode())
                assert int(client.makefile("rb").readline().split()[1]) == status, (source, login)
        assert get(port, "/status") == 200


def test_http_speaks_tls_where_the_other_ports_do(tmp_path: Path) -> None:
    files = CertificateFiles(tmp_path / "certificates")
    checks = {
        "tls.server.mode": "enforcing",
        "tls.server.authClient": "true",
        "tls.server.need.client.auth": "require",
        "tls.server.trustCertPath": files.path("authority.pem"),
    }
    pairs = [word for key, text in checks.items() for word in ("--set", f"{key}={text}")]
    with serving(tmp_path / "store", *ANYWHERE, *files.arguments, *pairs) as (_, scheme, port):
        assert scheme == "https"
        with pytest.raises((http.client.HTTPException, OSError)):
            get(port, "/healthz")
        with pytest.raises((http.client.HTTPException, OSError)):
            get(port, "/healthz", tls=files.client())
        assert get(port, "/metrics", tls=files.client("client")) == 200
    with serving(tmp_path / "both", *ANYWHERE, *files.arguments) as (_, scheme, port):
        assert scheme == "http"
        assert get(port, "/metrics", tls=files.client()) == get(port, "/metrics") == 200
