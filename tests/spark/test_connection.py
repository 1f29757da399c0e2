"""Sockets for bulk transfers: TLS, signatures, both header formats, namespaces; frames that arrive in chunks."""

import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from firearrow._native.columnar.batch_encoder import PropertyEdits, batch_body
from firearrow._native.wire.command import RemotingCommand
from firearrow.client import blocking
from firearrow.spark_tools.base.errors import Unreachable
from firearrow.spark_tools.base.filter import MessageFilter
from firearrow.spark_tools.base.source import QueueRange
from firearrow.spark_tools.live.broker_source import BrokerSource
from firearrow.spark_tools.live.client_link import SharedAdmin
from firearrow.spark_tools.live.cluster import Cluster
from firearrow.spark_tools.live.connection import FRAME_BYTES_MAX, BrokerSocket, connect
from firearrow.spark_tools.live.sender import Sender
from tests.client.conftest import unique
from tests.client.proxy import Detour
from tests.client.scripted import Scripted
from tests.interop.peers import Peer
from tests.spark.background_loop import BackgroundLoop
from tests.spark.record_bytes import record_bytes, spans_of
from tests.support.broker_process import BrokerProcess
from tests.support.certificates import CertificateFiles, settings

COUNT = 120


def never(part: QueueRange, why: str) -> None:
    raise AssertionError(f"{part} is reported as lost: {why}")


def there_and_back(target: Cluster, topic: str) -> None:
    """COUNT messages of 30 KB are sent and read."""
    bodies = [b"%d " % n * 7000 for n in range(COUNT)]
    spans = spans_of(*map(record_bytes, bodies))
    with Sender(target, timeout_s=10) as sender:
        (queue,) = sender.queues(topic)
        at = 0
        while at < COUNT:
            batch = batch_body(spans, at, PropertyEdits(), bytes_max=1 << 20)
            sender.send_batch(queue, batch.body, batch.count)
            at = batch.next
    with BrokerSource(target, timeout_s=10).open() as reader:
        part = QueueRange(queue, 0, COUNT)
        found = [
            s[i].body
            for s in reader.read(part, MessageFilter(), never, bytes_max=1 << 20)
            for i in range(len(s))
        ]
    assert found == bodies


@pytest.fixture
def background_loop() -> Iterator[BackgroundLoop]:
    with BackgroundLoop() as running:
        yield running


@pytest.fixture
def topic(peer: Peer) -> str:
    name = unique("wired")
    with blocking.Admin(name_server=peer.name_server) as admin:
        admin.create_topic(name, 1)
    return name


@pytest.mark.parametrize("serializer", ["JSON", "ROCKETMQ"])
def test_signed_and_in_either_header(peer: Peer, topic: str, serializer: str) -> None:
    there_and_back(
        Cluster.of(
            {
                "nameServer": peer.name_server,
                "rocketmq.accessKey": "key",
                "rocketmq.secretKey": "secret",
                "rocketmq.serializeType": serializer,
                "rocketmq.namespaceV2": "space",
            }
        ),
        topic,
    )


def test_in_a_namespace(peer: Peer) -> None:
    target = Cluster(name_server=peer.name_server, namespace="N")
    name = unique("spaced")
    with blocking.Admin(client=target.options()) as admin:
        admin.create_topic(name, 1)
        there_and_back(target, name)
    with blocking.Admin(name_server=peer.name_server) as plain:
        assert f"N%{name}" in plain.topics()
        assert name not in plain.topics()


def test_encrypted(peer: Peer, topic: str, background_loop: BackgroundLoop, tmp_path: Path) -> None:
    """Through a proxy that terminates TLS. A certificate of an unknown issuer is refused."""
    authority, theirs = trustme.CA(), ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(theirs)
    trusted = tmp_path / "authorities.pem"
    authority.cert_pem.write_to_path(str(trusted))
    detour = background_loop.enter(Detour(peer, tls=theirs))
    options = {"nameServer": detour.name_server, "rocketmq.useTLS": "true"}
    there_and_back(Cluster.of(options | {"rocketmq.tls.client.trustCertPath": str(trusted)}), topic)
    with (
        Sender(Cluster.of(options), timeout_s=0.2) as sender,
        pytest.raises(Unreachable, match="certificate"),
    ):
        sender.queues(topic)


def wants_certificates(store: Path, files: CertificateFiles) -> BrokerProcess:
    """A broker that accepts only TLS, and only clients with a certificate of its authority."""
    wanted = settings(server_mode="enforcing", server_need_client_auth="require", server_authClient="true")
    trusted = settings(server_trustCertPath=files.path("authority.pem"))
    return BrokerProcess(store, *files.arguments, *wanted, *trusted)


def with_certificate(broker: BrokerProcess, files: CertificateFiles, name: str) -> dict[str, str]:
    """Options of a client with the certificate of this name."""
    assert broker.name_server is not None
    return {
        "nameServer": "{}:{}".format(*broker.name_server),
        "rocketmq.useTLS": "true",
        "rocketmq.tls.client.trustCertPath": files.path("authority.pem"),
        "rocketmq.tls.client.certPath": files.path(f"{name}.pem"),
        "rocketmq.tls.client.keyPath": files.path(f"{name}.key"),
    }


def test_a_broker_that_accepts_only_tls_and_wants_certificates(tmp_path: Path) -> None:
    files = CertificateFiles(tmp_path / "certificates")
    with wants_certificates(tmp_path / "store", files) as running:
        target = Cluster.of(with_certificate(running, files, "client"))
        name = unique("encrypted")
        with blocking.Admin(client=target.options()) as admin:
            admin.create_topic(name, 1)
        there_and_back(target, name)


def test_files_are_read_again_and_a_refusal_says_why(tmp_path: Path) -> None:
    """A client's certificate that the server does not know, then its own name's, of the same path."""
    files = CertificateFiles(tmp_path / "certificates")
    with wants_certificates(tmp_path / "store", files) as running:
        options = with_certificate(running, files, "stranger")
        target = Cluster.of(options | {"rocketmq.tls.client.serverName": "localhost"})
        with Sender(target, timeout_s=0.5) as sender:
            with pytest.raises(Unreachable, match="does not trust the authority"):
                sender.queues("TBW102")
            admin = SharedAdmin.acquire(target)
            refused = connect(admin, "{}:{}".format(*running.address))
            with pytest.raises(ConnectionAbortedError, match="does not trust the authority"):
                refused.answers(5)
            refused.close()
            files.issue("stranger")  # the authority's own now
            assert sender.queues("TBW102")
            admin.release()


def test_a_peer_without_tls_is_an_error_in_time(background_loop: BackgroundLoop) -> None:
    cluster = background_loop.enter(Scripted("a"))
    target = Cluster(name_server=cluster.name_server, tls=True, check_server=False, connect_timeout_ms=300)
    with Sender(target, timeout_s=0.2) as sender, pytest.raises(Unreachable, match="no answer within"):
        sender.queues("t")


# ---- frames ----


@pytest.fixture
def ends() -> Iterator[tuple[BrokerSocket, socket.socket]]:
    ours, theirs = socket.socketpair()
    broker_socket = BrokerSocket(ours)
    yield broker_socket, theirs
    broker_socket.close()
    theirs.close()


def answer_bytes(opaque: int, body: bytes) -> bytes:
    request = RemotingCommand.request(11)
    request.opaque = opaque
    return request.answer(0, None, {"a": "1"}, body).encode()


def test_answers_come_whole_wherever_they_are_cut(ends: tuple[BrokerSocket, socket.socket]) -> None:
    broker_socket, other = ends
    data = answer_bytes(1, b"one") + answer_bytes(2, b"") + answer_bytes(3, b"three" * 9)
    for cut in range(1, len(data)):
        other.sendall(data[:cut])
        found: list[RemotingCommand] = []
        if cut >= len(answer_bytes(1, b"one")):
            found += broker_socket.answers(5)
        other.sendall(data[cut:])
        while len(found) < 3:
            found += broker_socket.answers(5)
        assert [(answer.opaque, answer.body) for answer in found] == [
            (1, b"one"),
            (2, b""),
            (3, b"three" * 9),
        ]


def test_requests_of_the_other_end_are_passed_over(ends: tuple[BrokerSocket, socket.socket]) -> None:
    broker_socket, other = ends
    other.sendall(RemotingCommand.request(40, {"x": "y"}).encode() + answer_bytes(7, b""))
    assert [answer.opaque for answer in broker_socket.answers(5)] == [7]


def test_silence_and_ends_are_distinguished(ends: tuple[BrokerSocket, socket.socket]) -> None:
    broker_socket, other = ends
    with pytest.raises(TimeoutError, match=r"no answer within 0\.05 s"):
        broker_socket.answers(0.05)
    other.sendall(answer_bytes(1, b"")[:-1])
    other.shutdown(socket.SHUT_WR)
    with pytest.raises(ConnectionResetError, match="the broker closed the connection"):
        broker_socket.answers(5)


@pytest.mark.parametrize("size", [FRAME_BYTES_MAX - 3, (1 << 32) - 1])
def test_a_frame_that_is_too_large_ends_the_connection(
    ends: tuple[BrokerSocket, socket.socket], size: int
) -> None:
    broker_socket, other = ends
    other.sendall(size.to_bytes(4))
    with pytest.raises(ConnectionAbortedError, match=r"a frame of \d+ bytes, over the limit of"):
        broker_socket.answers(5)


def test_an_invalid_frame_ends_the_connection(ends: tuple[BrokerSocket, socket.socket]) -> None:
    broker_socket, other = ends
    other.sendall((8).to_bytes(4) + b"\0\0\0\x04nono")
    with pytest.raises(ConnectionAbortedError, match="cannot decode a response"):
        broker_socket.answers(5)


def test_a_writer_reads_so_that_two_writers_do_not_block_each_other(
    ends: tuple[BrokerSocket, socket.socket],
) -> None:
    """The peer reads nothing before all of its own data is read."""
    broker_socket, other = ends
    theirs, ours = answer_bytes(5, bytes(8 << 20)), bytes(8 << 20)
    taken: list[int] = []

    def work() -> None:
        other.sendall(theirs)
        left = len(ours)
        while left:
            left -= len(other.recv(1 << 20))
        taken.append(left)

    working = threading.Thread(target=work)
    working.start()
    broker_socket.write((ours[:100], ours[100:]), 10)
    (answer,) = broker_socket.answers(10)
    working.join()
    assert (len(answer.body), taken) == (8 << 20, [0])


def test_writing_to_a_peer_that_reads_nothing_ends_in_time(ends: tuple[BrokerSocket, socket.socket]) -> None:
    with pytest.raises(TimeoutError):
        ends[0].write((bytes(64 << 20),), 0.05)
