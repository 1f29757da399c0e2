"""The PROXY protocol at all ports for clients: by raw bytes, and from a real HAProxy."""

import shutil
import socket
import ssl
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.ports import free_port
from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from tests.integration.test_process import COMMAND
from tests.metrics.scrapes import WatchedBroker
from tests.support.broker_process import WAYS, BrokerProcess
from tests.support.certificates import CertificateFiles
from tests.support.client_socket import ClientSocket
from tests.support.eventually import eventually
from tests.support.fork_server import ForkedCommand, run_forked
from tests.support.killing import killing
from tests.support.requests import pull_ext, send, send_ext
from tests.unit.broker.test_proxy_protocol import PACKED_4, PACKED_6, version_2

LOOPBACK = "127.0.0.1"
TCP4 = b"PROXY TCP4 192.0.2.7 198.51.100.1 4711 10911\r\n"
TCP6 = b"PROXY TCP6 2001:db8::7 2001:db8::1 4711 10911\r\n"
UNKNOWN = b"PROXY UNKNOWN\r\n"
LOCAL = version_2(0, b"", command=0x20)
TRUSTED = ("--set", "proxyProtocolTrustedAddresses=127.0.0.0/8;::1")
BORN_HOST_V6 = 1 << 4


class Proxied(ClientSocket):
    """A connection that begins with `first`, in pieces of `piece` bytes; then TLS, if that is given."""

    def __init__(
        self, address: tuple[str, int], first: bytes, piece: int = 0, tls: ssl.SSLContext | None = None
    ) -> None:
        super().__init__(address)
        for at in range(0, len(first), piece or len(first) or 1):
            self.socket.sendall(first[at : at + (piece or len(first))])
            if piece:
                time.sleep(0.002)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_hostname="localhost")


@pytest.fixture(scope="module", params=["engine", "transports"])
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[WatchedBroker]:
    """Accepts TLS, too."""
    folder = tmp_path_factory.mktemp("proxied")
    files = CertificateFiles(folder / "tls")
    way = [word for option in WAYS[request.param] for word in ("--set", option)]
    with WatchedBroker(folder / "store", *TRUSTED, *way, *files.arguments) as broker:
        broker.tls = files.client()
        with Proxied(broker.address, b"") as client:
            assert send(client, "T", b"first").code == 0
        yield broker


def born(client: ClientSocket, broker: WatchedBroker) -> str:
    """The address that a message of this client is stored with."""
    offset = int(send(client, "T", b"x").ext["queueOffset"])
    with Proxied(broker.address, b"") as reader:
        record = reader.ask(RequestCode.PULL_MESSAGE, pull_ext("T", offset)).body
    sys_flag = struct.unpack_from(">i", record, 36)[0]
    size, family = (16, socket.AF_INET6) if sys_flag & BORN_HOST_V6 else (4, socket.AF_INET)
    (port,) = struct.unpack_from(">i", record, 48 + size)
    return f"{socket.inet_ntop(family, record[48 : 48 + size])} {port if port == 4711 else 'own'}"


CASES = [
    (TCP4, "192.0.2.7 4711"),
    (TCP6, "2001:db8::7 4711"),
    (version_2(0x11, PACKED_4), "192.0.2.7 4711"),
    (version_2(0x21, PACKED_6 + b"\x02\0\4a.io"), "2001:db8::7 4711"),
    (UNKNOWN, "127.0.0.1 own"),
    (LOCAL, "127.0.0.1 own"),
    (version_2(0x31, bytes(216)), "127.0.0.1 own"),
    (b"", "127.0.0.1 own"),
]


@pytest.mark.parametrize(("header", "address"), CASES)
def test_what_a_trusted_proxy_reports_is_the_clients_address(
    broker: WatchedBroker, header: bytes, address: str
) -> None:
    with Proxied(broker.address, header) as client:
        assert born(client, broker) == address
    with Proxied(broker.address, header, piece=1) as client:
        assert born(client, broker) == address
    with Proxied(broker.address, header, tls=broker.tls) as client:
        assert born(client, broker) == address
    with Proxied((LOOPBACK, broker.address[1] - 2), header, piece=7, tls=broker.tls) as vip:
        assert born(vip, broker) == address


def test_a_header_and_requests_in_one_segment(broker: WatchedBroker) -> None:
    frame = RemotingCommand(RequestCode.SEND_MESSAGE_V2, send_ext("T"), b"at once").encode()
    with Proxied(broker.address, TCP4 + frame + frame) as client:
        assert [client.receive().code for _ in range(2)] == [0, 0]


def test_the_name_server_names_the_address_by_which_the_proxy_was_reached(broker: WatchedBroker) -> None:
    assert broker.name_server is not None
    with Proxied(broker.name_server, TCP4) as client:
        answer = client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"})
    assert b"198.51.100.1:%d" % broker.address[1] in answer.body


@pytest.mark.parametrize("header", [TCP4, version_2(0x21, PACKED_6), LOCAL, b""])
def test_http_takes_the_header(broker: WatchedBroker, header: bytes) -> None:
    for piece in (0, 5):
        with Proxied((LOOPBACK, broker.http_port), header, piece) as client:
            client.send_raw(b"GET /healthz HTTP/1.1\r\nConnection: close\r\n\r\n")
            assert client.socket.makefile("rb").readline() == b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize(
    "bad",
    [
        b"PROXY TCP4 192.0.2.7 198.51.100.1 4711\r\n",
        b"PROXY " + b"9" * 200,
        version_2(0x11, PACKED_4[:7]),
        version_2(0x11, PACKED_4, command=0x2F),
        version_2(0x11, bytes(5000)),
    ],
)
def test_a_header_that_is_not_valid_ends_the_connection(broker: WatchedBroker, bad: bytes) -> None:
    assert broker.name_server is not None
    for port in (broker.address[1], broker.address[1] - 2, broker.name_server[1], broker.http_port):
        before = _refusals(broker, "its PROXY protocol header is not valid")
        with Proxied((LOOPBACK, port), bad) as client:
            assert client.closed_by_peer()
        _await_refusal(broker, "its PROXY protocol header is not valid", before + 1)


def test_a_second_header_is_refused(broker: WatchedBroker) -> None:
    """A client behind the proxy cannot choose its own address."""
    with Proxied(broker.address, TCP4 + b"PROXY TCP4 127.0.0.1 127.0.0.1 1 2\r\n") as client:
        assert client.closed_by_peer()
    _await_refusal(broker, "closed 192.0.2.7:4711: it sent a PROXY protocol header", 1)


def test_an_end_within_the_header_leaves_nothing(broker: WatchedBroker) -> None:
    for cut in (1, 5, 12, 20):
        with Proxied(broker.address, version_2(0x11, PACKED_4)[:cut]) as client:
            client.socket.shutdown(socket.SHUT_WR)
            assert client.closed_by_peer()
    assert "Traceback" not in broker.log.read_text()


@pytest.mark.parametrize("way", ["engine", "transports"])
@pytest.mark.parametrize("mode", ["plain", "permissive", "enforcing"])
def test_by_default_the_header_is_refused_with_its_reason(tmp_path: Path, way: str, mode: str) -> None:
    words = [word for option in WAYS[way] for word in ("--set", option)]
    if mode != "plain":
        files = CertificateFiles(tmp_path / "tls")
        words += [*files.arguments, "--set", f"tls.server.mode={mode}"]
    with WatchedBroker(tmp_path / "store", *words) as broker:
        assert broker.name_server is not None
        ports = broker.address[1], broker.address[1] - 2, broker.name_server[1], broker.http_port
        for count, (port, header) in enumerate((port, each) for port in ports for each in (TCP4, LOCAL)):
            with Proxied((LOOPBACK, port), header) as client:
                assert client.closed_by_peer()
            _await_refusal(broker, "only addresses in proxyProtocolTrustedAddresses may", count + 1)


def test_quotas_connections_and_audit_name_the_client(tmp_path: Path) -> None:
    audit = tmp_path / "audit.log"
    own = ("--set", "authenticationEnabled=true", "--set", f"authAuditLog={audit}")
    with BrokerProcess(tmp_path / "users", *TRUSTED, *own) as broker, Proxied(broker.address, TCP4) as client:
        assert send(client, "T", b"x").code == ResponseCode.NO_PERMISSION
        eventually(lambda: "192.0.2.7" in audit.read_text())
    with BrokerProcess(tmp_path / "store", *TRUSTED) as broker, broker.connect() as admin:
        limit = {"entity": "address", "name": "192.0.2.7"}
        assert admin.ask(RequestCode.UPDATE_QUOTA, limit, b'{"connections":1}').code == 0
        with Proxied(broker.address, TCP4) as first, Proxied(broker.address, TCP4) as second:
            assert second.closed_by_peer()
            assert send(first, "T", b"x").code == 0
            assert b'"192.0.2.7:4711"' in admin.ask(RequestCode.LIST_CONNECTIONS).body
            with Proxied(broker.address, TCP6) as other:
                assert send(other, "T", b"x").code == 0


def _refusals(broker: BrokerProcess, text: str) -> int:
    return broker.log.read_text().count(text)


def _await_refusal(broker: BrokerProcess, text: str, count: int) -> None:
    eventually(lambda: _refusals(broker, text) == count)


def test_a_name_server_of_its_own_reads_the_option(tmp_path: Path) -> None:
    config = tmp_path / "namesrv.conf"
    config.write_text("proxyProtocolTrustedAddresses=127.0.0.1\n")
    words = [COMMAND, "namesrv", "--listen", "127.0.0.1:0", "--config", str(config)]
    with ForkedCommand(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path) as process:
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline().split(b",")[0].rpartition(b":")[2])
            with Proxied((LOOPBACK, port), TCP6) as client:
                assert client.ask(RequestCode.GET_BROKER_CLUSTER_INFO).code == 0
                refused = client.ask(
                    RequestCode.UPDATE_NAMESRV_CONFIG, body=b"proxyProtocolTrustedAddresses=0.0.0.0/0\n"
                )
                assert "cannot change" in (refused.remark or "")
        finally:
            process.terminate()
    config.write_text("proxyProtocolTrustedAddresses=everyone\n")
    refused_start = run_forked(*words[1:], folder=tmp_path)
    assert refused_start.returncode != 0
    assert "proxyProtocolTrustedAddresses must be addresses or networks" in refused_start.stderr


CONFIG = """
defaults
  mode tcp
  timeout connect 5s
  timeout client 20s
  timeout server 20s
listen one
  bind 127.0.0.2:{one}
  server broker 127.0.0.1:{broker} send-proxy
listen two
  bind 127.0.0.2:{two}
  server broker 127.0.0.1:{broker} send-proxy-v2 check
listen names
  bind 127.0.0.2:{names}
  server names 127.0.0.1:{name_server} send-proxy-v2
listen http
  mode http
  bind 127.0.0.2:{http}
  server http 127.0.0.1:{pages} send-proxy-v2
"""


@pytest.mark.skipif(shutil.which("haproxy") is None, reason="there is no haproxy: apt-get install haproxy")
def test_a_real_haproxy(broker: WatchedBroker, tmp_path: Path) -> None:
    assert broker.name_server is not None
    ports = {name: free_port() for name in ("one", "two", "names", "http")}
    config = tmp_path / "haproxy.cfg"
    text = CONFIG.format(
        **ports, broker=broker.address[1], name_server=broker.name_server[1], pages=broker.http_port
    )
    config.write_text(text)
    with killing(subprocess.Popen(["haproxy", "-db", "-f", str(config)], cwd=tmp_path)):
        eventually(lambda: _listens(ports["http"]))
        for port in (ports["one"], ports["two"]):
            for tls in (None, broker.tls):
                with _from("127.0.0.3", ("127.0.0.2", port), tls) as client:
                    assert born(client, broker) == "127.0.0.3 own"
        with _from("127.0.0.3", ("127.0.0.2", ports["names"]), None) as client:
            answer = client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"})
            assert b"127.0.0.2:%d" % broker.address[1] in answer.body
        with _from("127.0.0.3", ("127.0.0.2", ports["http"]), None) as client:
            client.send_raw(b"GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            assert client.socket.makefile("rb").readline() == b"HTTP/1.1 200 OK\r\n"


def _listens(port: int) -> bool:
    with socket.socket() as opened:
        return opened.connect_ex(("127.0.0.2", port)) == 0


def _from(host: str, address: tuple[str, int], tls: ssl.SSLContext | None) -> ClientSocket:
    """A connection from this address of ours."""
    client = ClientSocket.__new__(ClientSocket)
    client.keys, client.requests, client._rest, client._opaque = None, [], b"", 0
    client.socket = socket.create_connection(address, 20, (host, 0))
    if tls is not None:
        client.socket = tls.wrap_socket(client.socket, server_hostname="localhost")
    return client
