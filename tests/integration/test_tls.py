"""TLS of broker and name server: modes, client certificates, versions, reload, and peers that lie or stall."""

import asyncio
import datetime
import random
import re
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.net.tls import ServerTls
from tests.integration.latency_probe import LatencyProbe
from tests.integration.test_command import WRONG_USAGE, run_broker, sentence
from tests.integration.test_process import COMMAND
from tests.support.broker_process import WAYS, BrokerProcess
from tests.support.certificates import CertificateFiles, settings
from tests.support.client_socket import ClientSocket
from tests.support.eventually import eventually
from tests.support.fork_server import ForkedCommand
from tests.support.frames import split_frames
from tests.support.requests import pull, send
from tests.support.startup import constants

TLS_1_2, TLS_1_3 = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3
STALLED = 1000
HELLO_BYTE = b"\x16"
QUICK_WATCH_S = 0.2
CLIENT_HELLO = 1


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> CertificateFiles:
    return CertificateFiles(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(params=["engine", "transports"])
def way(request: pytest.FixtureRequest) -> tuple[str, ...]:
    return WAYS[request.param]


@contextmanager
def clean_broker(store: Path, *arguments: str) -> Iterator[BrokerProcess]:
    """It must end cleanly, and without a traceback in its log."""
    with BrokerProcess(store, *arguments, way=WAYS["engine"]) as running:
        yield running
        assert running.stop() == 0
        assert "Traceback" not in running.log.read_text()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, files: CertificateFiles) -> Iterator[BrokerProcess]:
    """One for all tests that need no other."""
    with clean_broker(tmp_path_factory.mktemp("shared") / "store", *files.arguments) as running:
        yield running


@pytest.fixture
def logging_broker(tmp_path: Path, files: CertificateFiles) -> Iterator[BrokerProcess]:
    """One for a test that reads what it logs."""
    with clean_broker(tmp_path / "store", *files.arguments) as running:
        yield running


def works(address: tuple[str, int], tls: ssl.SSLContext | None = None) -> bool:
    """Whether a request gets an answer, rather than a closed connection."""
    try:
        with ClientSocket(address, 10, tls) as connection:
            return connection.ask(RequestCode.GET_NAMESRV_CONFIG).is_response
    except (ConnectionError, ssl.SSLError):
        return False


@pytest.mark.parametrize("mode", ["permissive", "enforcing", "disabled"])
def test_modes(tmp_path: Path, files: CertificateFiles, way: tuple[str, ...], mode: str) -> None:
    arguments = (*files.arguments, *settings(server_mode=mode))
    with BrokerProcess(tmp_path / "store", *arguments, way=way) as running:
        assert running.name_server is not None
        vip = running.address[0], running.address[1] - 2
        for address in (running.address, vip, running.name_server):
            for version in (TLS_1_2, TLS_1_3):
                assert works(address, files.client(version=version)) == (mode != "disabled")
            assert works(address) == (mode != "enforcing")
        assert running.stop() == 0
        log = running.log.read_text()
        assert ("only TLS connections are accepted" in log) == (mode == "enforcing")
        assert "Traceback" not in log


@pytest.mark.parametrize("wanted", ["optional", "require"])
def test_client_certificates(
    tmp_path: Path, files: CertificateFiles, way: tuple[str, ...], wanted: str
) -> None:
    arguments = (
        *files.arguments,
        *("--set", f"tls.server.need.client.auth={wanted}"),
        *("--set", "tls.server.authClient=true"),
        *("--set", f"tls.server.trustCertPath={files.path('authority.pem')}"),
    )
    with BrokerProcess(tmp_path / "store", *arguments, way=way) as running:
        for version in (TLS_1_2, TLS_1_3):
            assert works(running.address, files.client("client", version))
            assert not works(running.address, files.client("stranger", version))
            assert works(running.address, files.client(None, version)) == (wanted == "optional")
        assert running.stop() == 0
        assert "Traceback" not in running.log.read_text()


def test_protocols_and_ciphers(tmp_path: Path, files: CertificateFiles, way: tuple[str, ...]) -> None:
    suite = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"
    with BrokerProcess(
        tmp_path / "store", *files.arguments, *settings(protocols="TLSv1.2", ciphers=suite), way=way
    ) as running:
        assert not works(running.address, files.client(version=TLS_1_3))
        with ClientSocket(running.address, tls=files.client(version=TLS_1_2)) as connection:
            assert isinstance(connection.socket, ssl.SSLSocket)
            assert connection.socket.cipher() == ("ECDHE-ECDSA-AES128-GCM-SHA256", "TLSv1.2", 128)


def test_a_made_certificate(tmp_path: Path, way: tuple[str, ...]) -> None:
    unchecked = ssl.create_default_context()
    unchecked.check_hostname, unchecked.verify_mode = False, ssl.CERT_NONE
    with BrokerProcess(tmp_path / "store", *settings(server_mode="enforcing"), way=way) as running:
        assert works(running.address, unchecked)
        assert not works(running.address)


@pytest.mark.parametrize("version", [TLS_1_2, TLS_1_3])
def test_large_messages(
    tmp_path: Path, files: CertificateFiles, way: tuple[str, ...], version: ssl.TLSVersion
) -> None:
    """In both directions: many records a frame, frames that end within a record."""
    random.seed(1)
    with (
        BrokerProcess(tmp_path / "store", *files.arguments, way=way) as running,
        ClientSocket(running.address, tls=files.client(version=version), keys=running.keys) as connection,
    ):
        bodies = [random.randbytes(size) for size in (1, 16_000, 16_384, 100_001, 262_144, 3_000_000)]
        for body in bodies:
            assert send(connection, "Large", body).code == 0
        for number, body in enumerate(bodies):
            assert body in pull(connection, "Large", number).body
        assert running.stop() == 0


def test_pipelined_requests_with_slow_reader(broker: BrokerProcess, files: CertificateFiles) -> None:
    """Replies beyond what the kernel takes: the broker pauses and goes on, no request is lost."""
    with ClientSocket(broker.address, tls=files.client()) as connection:
        opaques = [connection.send_request(RequestCode.GET_BROKER_CONFIG) for _ in range(2000)]
        time.sleep(0.3)
        assert [connection.receive().opaque for _ in opaques] == opaques


def test_bytes_one_by_one(broker: BrokerProcess, files: CertificateFiles) -> None:
    """Handshake and records arrive in pieces of every length."""
    for piece in (1, 3, 7, 100):
        client = MemoryClient(files.client(), broker.address, piece)
        client.ask_runtime_info()
        client.close()


class MemoryClient:
    """A client that sends its ciphertext in pieces of some bytes, and can change them."""

    def __init__(
        self,
        context: ssl.SSLContext,
        address: tuple[str, int],
        piece: int = 1 << 16,
        *,
        handshakes: bool = True,
    ) -> None:
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")
        self.socket = socket.create_connection(address, 10)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.piece = piece
        if handshakes:
            self.finish()

    def finish(self) -> None:
        """The handshake."""
        self._until(self.tls.do_handshake)

    def _until(self, step: object) -> bytes:
        while True:
            try:
                result = step()  # type: ignore[operator]
            except ssl.SSLWantReadError:
                self.flush()
                got = self.socket.recv(1 << 16)
                if not got:
                    raise ConnectionError("closed by the broker") from None
                self.incoming.write(got)
            else:
                self.flush()
                return result if isinstance(result, bytes) else b""

    def flush(self) -> None:
        data = self.outgoing.read()
        for at in range(0, len(data), self.piece):
            self.socket.sendall(data[at : at + self.piece])

    def ask_runtime_info(self) -> None:
        self.tls.write(RemotingCommand(RequestCode.GET_BROKER_RUNTIME_INFO, {}, b"").encode())
        self.flush()
        rest = b""
        while True:
            rest += self._until(lambda: self.tls.read(1 << 16))
            if split_frames(rest)[0]:
                return

    def close(self) -> None:
        self.socket.close()


def test_a_certificate_is_read_again_under_connections(tmp_path: Path, way: tuple[str, ...]) -> None:
    files = CertificateFiles(tmp_path / "certificates")
    with BrokerProcess(tmp_path / "store", *files.arguments, way=way) as running:
        with ClientSocket(running.address, tls=files.client(), keys=running.keys) as connection:
            before = serial(running.address, files)
            files.issue("server")
            eventually(lambda: serial(running.address, files) != before)
            assert connection.ask(RequestCode.GET_BROKER_RUNTIME_INFO).code == 0
            after = serial(running.address, files)
            Path(files.path("server.key")).write_text("no key")
            eventually(lambda: "those loaded before stay in use" in running.log.read_text())
            assert serial(running.address, files) == after
            assert connection.ask(RequestCode.GET_BROKER_RUNTIME_INFO).code == 0
        assert running.stop() == 0


def test_apaches_file_is_read_again(tmp_path: Path, way: tuple[str, ...]) -> None:
    """It may name another certificate, which is then watched, too, also if it cannot be used yet."""
    files, file = CertificateFiles(tmp_path / "certificates"), tmp_path / "tls.properties"

    def name(certificate: str) -> None:
        paths = ((each, files.path(f"{certificate}.{each}")) for each in ("pem", "key"))
        keys = {"pem": "tls.server.certPath", "key": "tls.server.keyPath"}
        file.write_text("".join(f"{keys[each]}={path}\n" for each, path in paths))

    name("server")
    arguments = settings(config_file=str(file), server_mode="enforcing")
    with BrokerProcess(tmp_path / "store", *arguments, way=way) as running:
        before = serial(running.address, files)
        name("next")
        eventually(lambda: "those loaded before stay in use" in running.log.read_text())
        assert serial(running.address, files) == before
        files.issue("next")
        eventually(lambda: serial(running.address, files) != before)


@pytest.mark.parametrize("name", ["server.pem", "server.key", "authority.pem"])
@pytest.mark.parametrize("rubbish", ["rubbish", "empty", "binary", "cut", "no base64", "missing"])
def test_files_that_become_rubbish_change_nothing(
    checking: tuple[BrokerProcess, CertificateFiles], name: str, rubbish: str
) -> None:
    """Neither the certificate nor who is let in; a good file is used again."""
    running, files = checking
    trusting, stranger = files.client("client"), files.client("stranger")
    path, before = Path(files.path(name)), Path(files.path(name)).read_bytes()
    head, line, rest = before.partition(b"\n")
    contents = {
        "rubbish": b"rubbish\n" * 100,
        "empty": b"",
        "binary": bytes(range(256)) * 8,
        "cut": before[: len(before) // 2],
        "no base64": head + line + b"!" + rest[1:],
    }
    logged = len(running.log.read_text())
    if rubbish == "missing":
        path.unlink()
    else:
        path.write_bytes(contents[rubbish])
    eventually(lambda: "those loaded before stay in use" in running.log.read_text()[logged:])
    assert works(running.address, trusting)
    assert not works(running.address, stranger)
    path.write_bytes(before)
    eventually(lambda: "new connections use them" in running.log.read_text()[logged:])
    assert works(running.address, trusting)


@pytest.fixture(scope="module")
def checking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BrokerProcess, CertificateFiles]]:
    """A broker that wants certificates of clients, and its files, which no other test uses."""
    folder = tmp_path_factory.mktemp("checking")
    files = CertificateFiles(folder / "certificates")
    checks = settings(
        server_need_client_auth="require",
        server_authClient="true",
        server_trustCertPath=files.path("authority.pem"),
    )
    with clean_broker(folder / "store", *files.arguments, *checks) as running:
        yield running, files


def serial(address: tuple[str, int], files: CertificateFiles) -> str:
    """Of the certificate that a new connection gets."""
    with ClientSocket(address, tls=files.client()) as connection:
        assert isinstance(connection.socket, ssl.SSLSocket)
        found = connection.socket.getpeercert()
        assert found is not None
        return str(found["serialNumber"])


def test_a_broker_registers_over_tls(tmp_path: Path, files: CertificateFiles) -> None:
    """With name servers that accept TLS only, and want to see the broker's certificate."""
    wanted = (
        *settings(server_mode="enforcing", server_need_client_auth="require", server_authClient="true"),
        *settings(server_trustCertPath=files.path("authority.pem")),
    )
    with BrokerProcess(tmp_path / "names", *files.arguments, *wanted) as names:
        assert names.name_server is not None
        address = "{}:{}".format(*names.name_server)
        own = settings(client_certPath=files.path("client.pem"), client_keyPath=files.path("client.key"))
        checks = settings(client_authServer="true", client_trustCertPath=files.path("authority.pem"))
        outgoing = ("--namesrv", address, "--set", "brokerName=far", *settings(enable="true"), *own, *checks)
        with (
            BrokerProcess(tmp_path / "store", *outgoing),
            ClientSocket(names.name_server, tls=files.client("client"), keys=names.keys) as connection,
        ):
            eventually(
                lambda: b'"far"' in connection.ask(RequestCode.GET_BROKER_CLUSTER_INFO).body, within_s=20
            )


def test_a_name_server_alone(tmp_path: Path, files: CertificateFiles) -> None:
    config = tmp_path / "namesrv.conf"
    config.write_text("tls.server.mode=enforcing\n")
    command = [COMMAND, "namesrv", "--listen", "127.0.0.1:0", "--config", str(config), *files.arguments]
    with ForkedCommand(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline().split(",")[0].rpartition(":")[2])
        assert works(("127.0.0.1", port), files.client())
        assert not works(("127.0.0.1", port))
        process.terminate()
        assert process.wait(10) == 0


# ---- peers that lie or stall ----


def test_stalled_handshakes_cost_bounded_memory_and_no_time(
    logging_broker: BrokerProcess, files: CertificateFiles
) -> None:
    """Connections that send one byte, or a ClientHello and no more, are closed after ten seconds."""
    broker, hello = logging_broker, client_hello(files)
    with LatencyProbe(broker) as probe:
        before = broker.anonymous_kib()
        stalled = [socket.create_connection(broker.address, 10) for _ in range(STALLED)]
        for number, each in enumerate(stalled):
            each.sendall(HELLO_BYTE if number % 2 else hello)
        for version in (TLS_1_2, TLS_1_3):  # in the client's last flight, too
            for cut in (0, 1, 5, 6, 20, -1):
                client = MemoryClient(files.client(version=version), broker.address, handshakes=False)
                client.socket.sendall(last_flight(client)[:cut])
                stalled.append(client.socket)
        assert works(broker.address, files.client())
        assert broker.anonymous_kib() - before < 64 * STALLED
        deadline = time.monotonic() + 20
        for each in stalled:
            each.settimeout(max(deadline - time.monotonic(), 0.01))
            while each.recv(1 << 16):
                pass
            each.close()
    assert probe.worst_s < 2
    eventually(lambda: "the handshake was not complete after 10 s" in broker.log.read_text())


def test_the_oldest_handshakes_are_closed_above_a_limit(
    tmp_path: Path, files: CertificateFiles, way: tuple[str, ...]
) -> None:
    with BrokerProcess(tmp_path / "store", *files.arguments, way=way) as running:
        first = socket.create_connection(running.address, 10)
        first.sendall(HELLO_BYTE)
        others = [socket.create_connection(running.address, 10) for _ in range(1024)]
        for each in others:
            each.sendall(HELLO_BYTE)
        assert first.recv(1) == b""
        assert works(running.address, files.client())
        for each in (first, *others):
            each.close()
        assert running.stop() == 0


SHORT_HANDSHAKES = constants({"firearrow.broker.net.server:HANDSHAKE_S": 1})
"""Of `transports`; `engine`'s are compiled."""


@pytest.mark.parametrize("way", [pytest.param("engine", marks=pytest.mark.long), "transports"], indirect=True)
def test_handshakes_that_stall_before_finished(
    tmp_path: Path, files: CertificateFiles, way: tuple[str, ...]
) -> None:
    """After the ServerHello, or within any record of the client's last flight."""
    with BrokerProcess(
        tmp_path / "store", *files.arguments, way=way, environment=SHORT_HANDSHAKES
    ) as running:
        stalled = []
        for version in (TLS_1_2, TLS_1_3):
            for cut in (0, 1, 5, 6, 20, -1):
                client = MemoryClient(files.client(version=version), running.address, handshakes=False)
                client.socket.sendall(last_flight(client)[:cut])
                stalled.append(client.socket)
        assert works(running.address, files.client())
        deadline = time.monotonic() + 15
        for each in stalled:
            each.settimeout(max(deadline - time.monotonic(), 0.01))
            while each.recv(1 << 16):
                pass
            each.close()
        assert works(running.address, files.client())
        assert running.stop() == 0
        assert "Traceback" not in running.log.read_text()


def last_flight(client: "MemoryClient") -> bytes:
    """What the client would send after the server's first flight, up to its Finished."""
    while True:
        try:
            client.tls.do_handshake()
        except ssl.SSLWantReadError:
            data = client.outgoing.read()
            if not data.startswith(HELLO_BYTE) or data[5] != CLIENT_HELLO:
                return data
            client.socket.sendall(data)
            client.incoming.write(server_flight(client))
        else:
            return client.outgoing.read()


def server_flight(client: "MemoryClient") -> bytes:
    """The server's first flight, which may come in several segments."""
    data = client.socket.recv(1 << 16)
    client.socket.settimeout(0.05)
    try:
        while True:
            data += client.socket.recv(1 << 16)
    except TimeoutError:
        client.socket.settimeout(10)
        return data


@pytest.mark.parametrize("size", [1, 2, 3, 4, 50])
@pytest.mark.parametrize("piece", [1, 7, 1 << 16])
def test_a_client_hello_in_many_records(
    broker: BrokerProcess, files: CertificateFiles, size: int, piece: int
) -> None:
    """Of `size` bytes each, in segments of `piece` bytes."""
    client = MemoryClient(files.client(), broker.address, piece, handshakes=False)
    with pytest.raises(ssl.SSLWantReadError):
        client.tls.do_handshake()
    hello = client.outgoing.read()
    message = hello[5:]
    parts = [message[at : at + size] for at in range(0, len(message), size)]
    client.outgoing.write(b"".join(hello[:3] + len(part).to_bytes(2, "big") + part for part in parts))
    client.finish()
    client.ask_runtime_info()
    client.close()


@pytest.mark.parametrize(
    "start",
    [
        b"\x16\x03\x01\x00\x00\x16\x03\x01",  # an empty record
        b"\x16\x03\x01\x00\x01\x02",  # no ClientHello
        b"\x16\x03\x01\x00\x01\x01\x17\x03\x03\x00\x01\x00",  # data within it
        b"\x16\x03\x01\x00\x01\x01\x16\x03\x01\x00\x01\x10\x16\x03\x01\x00\x02\x00\x00",  # 1 MiB
        b"\x16\x02",
    ],
)
def test_a_client_hello_that_is_none_is_refused_at_once(broker: BrokerProcess, start: bytes) -> None:
    with broker.connect() as connection:
        connection.send_raw(start)
        assert connection.closed_by_peer(5)


def client_hello(files: CertificateFiles) -> bytes:
    outgoing = ssl.MemoryBIO()
    tls = files.client().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()


def test_a_client_hello_that_claims_much_is_refused_at_once(logging_broker: BrokerProcess) -> None:
    with logging_broker.connect() as connection:
        connection.send_raw(b"\x16\x03\x01\x02\x00\x01\x02\x00\x00")
        assert connection.closed_by_peer(5)
    eventually(lambda: "the ClientHello is longer than" in logging_broker.log.read_text())


def test_a_client_that_trusts_nobody_is_logged(logging_broker: BrokerProcess) -> None:
    assert not works(logging_broker.address, ssl.create_default_context())
    eventually(lambda: re.search("TLS: .*unknown ca", logging_broker.log.read_text()))


def test_renegotiation_is_refused(broker: BrokerProcess) -> None:
    """openssl's client asks for one with `R`."""
    command = ["openssl", "s_client", "-connect", "{}:{}".format(*broker.address), "-tls1_2"]
    try:
        done = subprocess.run(
            command, input="R\nQ\n", capture_output=True, text=True, timeout=20, check=False
        )
    except FileNotFoundError:
        pytest.skip("the openssl command is missing")
    assert "RENEGOTIATING" in done.stdout + done.stderr
    assert "no renegotiation" in done.stdout + done.stderr


def test_fuzzed_handshakes_harm_no_other(broker: BrokerProcess, files: CertificateFiles) -> None:
    """Changed, cut and repeated bytes of a ClientHello, and changed records after a handshake."""
    random.seed(7)
    hello = client_hello(files)
    with ClientSocket(broker.address, tls=files.client(), keys=broker.keys) as other:
        for _ in range(300):
            changed = bytearray(hello)
            for _ in range(random.randrange(1, 6)):
                changed[random.randrange(1, len(changed))] = random.randrange(256)
            with socket.create_connection(broker.address, 10) as connection:
                connection.sendall(changed[: random.randrange(1, len(changed) + 1)])
                if random.random() < 0.3:
                    connection.sendall(random.randbytes(random.randrange(200)))
        for at in range(20):
            client = MemoryClient(files.client(version=TLS_1_2 if at % 2 else TLS_1_3), broker.address)
            client.tls.write(bytes(100))
            record = bytearray(client.outgoing.read())
            record[5 + at] ^= 1
            client.socket.sendall(record)
            while client.socket.recv(1 << 16):
                pass
            client.close()
        assert other.ask(RequestCode.GET_BROKER_RUNTIME_INFO).code == 0


def test_an_end_right_after_the_handshake(broker: BrokerProcess, files: CertificateFiles) -> None:
    """The client's last handshake message, a request and the end of the stream in one packet."""
    for version in (TLS_1_2, TLS_1_3):
        client = MemoryClient(files.client(version=version), broker.address, handshakes=False)
        while True:
            try:
                client.tls.do_handshake()
            except ssl.SSLWantReadError:
                client.flush()
                client.incoming.write(client.socket.recv(1 << 16))
            else:
                break
        client.tls.write(RemotingCommand(RequestCode.GET_BROKER_RUNTIME_INFO, {}, b"").encode())
        client.flush()
        client.socket.shutdown(socket.SHUT_WR)
        client.socket.settimeout(5)
        while client.socket.recv(1 << 16):
            pass
        client.close()


def test_a_clean_end(broker: BrokerProcess, files: CertificateFiles) -> None:
    """close_notify is answered, and a stopping broker sends one."""
    client = MemoryClient(files.client(), broker.address)
    client.ask_runtime_info()
    with pytest.raises(ssl.SSLWantReadError):
        client.tls.unwrap()
    client.flush()
    client._until(client.tls.unwrap)
    assert client.socket.recv(1) == b""
    client.close()


# ---- configurations that cannot take effect ----


@pytest.mark.parametrize(
    ("pairs", "named"),
    [
        ({"server_certPath": "{server.pem}"}, "tls.server.keyPath is not set"),
        ({"server_certPath": "/missing", "server_keyPath": "{server.key}"}, "No such file"),
        ({"server_certPath": "{server.pem}", "server_keyPath": "{client.key}"}, "does not belong to"),
        ({"server_certPath": "{server.key}", "server_keyPath": "{server.key}"}, "not in PEM format"),
        ({"server_mode": "enforcing", "test_mode_enable": "false"}, "needs tls.server.certPath"),
        ({"server_mode": "strict"}, "tls.server.mode must be"),
        ({"server_mode": "enforcing", "server_need_client_auth": "require"}, "authClient=true"),
        ({"server_mode": "enforcing", "server_authClient": "true"}, "checks nothing"),
        ({"config_file": "/missing"}, "there is no such file"),
        ({"server_mode": "enforcing", "protocols": "TLSv1"}, "tls.protocols"),
        (
            {"enable": "true", "client_authServer": "true", "client_trustCertPath": "/missing"},
            "trustCertPath",
        ),
        ({"server_mod": "enforcing"}, "tls.server.mode"),
        ({"server_need_client_auth": "require"}, "need.client.auth has no effect without TLS"),
        ({"server_authClient": "true"}, "set tls.server.certPath and tls.server.keyPath"),
        ({"server_trustCertPath": "{authority.pem}"}, "trustCertPath has no effect without TLS"),
        ({"protocols": "TLSv1.3"}, "tls.protocols has no effect without TLS"),
        ({"client_authServer": "true"}, "tls.client.authServer has no effect without TLS: set tls.enable"),
    ],
)
def test_tls_that_cannot_be_had_ends_the_start(
    tmp_path: Path, files: CertificateFiles, pairs: dict[str, str], named: str
) -> None:
    found = {
        key: re.sub(r"\{(.*)\}", lambda match: files.path(match[1]), text) for key, text in pairs.items()
    }
    if "TLSv1" in pairs.values():
        found |= {"server_certPath": files.path("server.pem"), "server_keyPath": files.path("server.key")}
    assert named in sentence(run_broker(tmp_path / "store", *settings(**found)), WRONG_USAGE)
    assert not (tmp_path / "store").exists()


def issue_for(files: CertificateFiles, days: int) -> None:
    """A certificate that ends in `days` days."""
    now = datetime.datetime.now(datetime.UTC)
    day = datetime.timedelta(days=1)
    files.issue("server", not_before=now - 9 * day, not_after=now + days * day)


@pytest.mark.parametrize(("days", "text"), [(-1, "has expired on"), (13, "expires on"), (15, "")])
def test_a_certificate_that_expires_is_a_warning(tmp_path: Path, days: int, text: str) -> None:
    files = CertificateFiles(tmp_path / "certificates")
    issue_for(files, days)
    with BrokerProcess(tmp_path / "store", *files.arguments) as running:
        found = re.findall("the certificate .* (has expired on|expires on)", running.log.read_text())
        assert found == ([text] if text else [])


def test_it_is_reported_again_each_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("firearrow.broker.net.tls.WATCH_S", QUICK_WATCH_S)
    files = CertificateFiles(tmp_path / "certificates")
    issue_for(files, 13)
    names = {"tls.server.certPath": files.path("server.pem"), "tls.server.keyPath": files.path("server.key")}

    async def run() -> None:
        tls = ServerTls(names)
        tls.start(asyncio.get_running_loop())
        await asyncio.sleep(3 * QUICK_WATCH_S)
        tls.stop()

    asyncio.run(run())
    assert caplog.text.count("expires on") == 1
    monkeypatch.setattr("firearrow.broker.net.tls.WARN_AGAIN_S", 1.2 * QUICK_WATCH_S)
    caplog.clear()
    asyncio.run(run())
    assert 2 <= caplog.text.count("expires on") <= 3  # a busy machine may be late for the second watch


def warnings_of(store: Path, *words: str) -> str:
    with BrokerProcess(store, "--listen", "0.0.0.0:0", *words) as running:
        assert running.stop() == 0
        return running.log.read_text()


def test_an_open_port_is_a_warning_until_it_has_tls_and_users(
    tmp_path: Path, files: CertificateFiles
) -> None:
    log = warnings_of(tmp_path / "store")
    assert "any client that reaches these ports" in log
    assert "firearrow tls init" in log
    assert "--namesrv-listen 0.0.0.0:0" in log
    log = warnings_of(tmp_path / "other", *files.arguments)
    assert "any client that reaches these ports" in log
    assert "firearrow tls init" not in log
    users = ("authenticationEnabled=true", "authorizationEnabled=true")
    words = [word for key in users for word in ("--set", key)]
    words += ["--set", 'initAuthenticationUser={"username":"a","password":"b"}']
    assert "ports" not in warnings_of(tmp_path / "users", *files.arguments, *words)


def test_an_open_name_server_is_a_warning(tmp_path: Path, files: CertificateFiles) -> None:
    config = tmp_path / "namesrv.conf"
    config.write_text(f"kvConfigPath={tmp_path}/kvConfig.json\n")

    def log(host: str, *more: str) -> str:
        command = [COMMAND, "namesrv", "--listen", f"{host}:0", "--config", str(config), *more]
        with ForkedCommand(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("firearrow ready")
            process.terminate()
            return process.communicate(timeout=10)[1]

    assert "ports" not in log("127.0.0.1")
    text = log("0.0.0.0")
    assert "any client that reaches these ports can register brokers" in text
    assert "firearrow tls init" in text
    config.write_text(config.read_text() + "authenticationEnabled=true\n")
    assert "ports" not in log("0.0.0.0", *files.arguments)


def test_the_key_s_password_is_not_printed(tmp_path: Path, files: CertificateFiles) -> None:
    words = ("--set", "tls.server.keyPassword=hush hush")
    with BrokerProcess(tmp_path / "store", *files.arguments, *words) as running:
        with running.connect() as connection:
            body = connection.ask(RequestCode.GET_BROKER_CONFIG).body.decode()
        assert "tls.server.keyPassword=(hidden)" in body
        assert "hush" not in body + running.log.read_text()
