"""Where clients of gRPC connect: each port, with TLS and without, and where they are not served, why."""

import http.client
import re
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import grpc
import pytest

from bench.ports import free_port
from firearrow._native.wire.codes import RequestCode
from tests.support.broker_process import WAYS, BrokerProcess
from tests.support.certificates import CertificateFiles, settings
from tests.support.client_socket import ClientSocket
from tests.support.eventually import eventually
from tests.support.fork_server import ForkedCommand, run_forked
from tests.support.grpc_caller import GrpcCaller, create_topic
from tests.support.http2_frames import PREFACE, SETTINGS, opening
from tests.support.requests import send

Address = tuple[str, int]
COMMAND = str(Path(sys.executable).with_name("firearrow"))
BOTH = ["h2", "http/1.1"]
PROTOBUF = "raise ImportError('a test has taken protobuf away')\n"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> CertificateFiles:
    return CertificateFiles(tmp_path_factory.mktemp("certificates"))


def listening(*, grpc_port: int | None = None) -> tuple[str, ...]:
    """Arguments for ports that are not found by the broker, as the default port of gRPC is left out with them."""
    more = () if grpc_port is None else ("--set", f"grpcServerPort={grpc_port}")
    return "--listen", f"127.0.0.1:{free_port()}", *more


def ports_of(broker: BrokerProcess, grpc_port: int) -> dict[str, Address]:
    host, port = broker.address
    assert broker.name_server is not None
    return {
        "broker": (host, port),
        "VIP": (host, port - 2),
        "name server": broker.name_server,
        "grpcServerPort": (host, grpc_port),
    }


@contextmanager
def metrics_of(broker: BrokerProcess) -> Iterator[int]:
    """The port of HTTP, which the line after the first one names."""
    assert broker.process.stdout is not None
    yield int(broker.process.stdout.readline().rpartition(":")[2].partition("/")[0])


def code_at(address: Address, credentials: grpc.ChannelCredentials | None = None) -> str:
    with GrpcCaller(address, credentials=credentials) as caller:
        return caller.code("QueryRoute", topic={"name": "T"})[0]


def refused_at(address: Address, credentials: grpc.ChannelCredentials | None = None) -> tuple[str, str]:
    with pytest.raises(grpc.RpcError) as refused:
        code_at(address, credentials)
    return refused.value.code().name, str(refused.value.details())


def credentials(files: CertificateFiles, own: str | None = None) -> grpc.ChannelCredentials:
    authority = Path(files.path("authority.pem")).read_bytes()
    if own is None:
        return grpc.ssl_channel_credentials(authority)
    key, certificate = (Path(files.path(f"{own}.{kind}")).read_bytes() for kind in ("key", "pem"))
    return grpc.ssl_channel_credentials(authority, key, certificate)


# ---- ports ----


def test_every_port_of_a_broker_serves_it(tmp_path: Path) -> None:
    port = free_port()
    with BrokerProcess(tmp_path / "store", "--set", f"grpcServerPort={port}", way=WAYS["engine"]) as broker:
        with ClientSocket(broker.address) as connection:
            create_topic(connection, "T")
        for name, address in ports_of(broker, port).items():
            assert code_at(address) == "OK", name
        with ClientSocket(("127.0.0.1", port)) as connection:
            answer = connection.ask(RequestCode.GET_BROKER_RUNTIME_INFO)
        assert (answer.code, answer.remark) == (3, "this port serves gRPC alone: use the broker's port")
        assert broker.stop() == 0


@pytest.mark.parametrize("way", ["engine", "transports"])
def test_with_tls_as_well(tmp_path: Path, files: CertificateFiles, way: str) -> None:
    port = free_port()
    arguments = ("--set", f"grpcServerPort={port}", *files.arguments, "--http", "127.0.0.1:0")
    with BrokerProcess(tmp_path / "store", *arguments, way=WAYS[way]) as broker:
        with ClientSocket(broker.address, tls=files.client()) as connection:
            create_topic(connection, "T")
        for name, address in ports_of(broker, port).items():
            assert code_at(address, credentials(files)) == "OK", name
            for offered, chosen in ((BOTH, "h2"), (BOTH[::-1], "h2"), (["h2"], "h2"), (["http/1.1"], None)):
                assert alpn(address, files.client(), offered) == chosen, (name, offered)
        with metrics_of(broker) as metrics:
            for offered, chosen in ((BOTH, "http/1.1"), (["http/1.1"], "http/1.1"), (["h2"], None)):
                assert alpn(("127.0.0.1", metrics), files.client(), offered) == chosen, offered
            page = http.client.HTTPSConnection("127.0.0.1", metrics, context=files.client())
            page.request("GET", "/healthz")
            assert page.getresponse().status in (200, 404)
            page.close()
        assert broker.stop() == 0


def alpn(address: Address, context: ssl.SSLContext, offered: list[str]) -> str | None:
    """The protocol that the server chooses."""
    context.set_alpn_protocols(offered)
    with (
        socket.create_connection(address, 10) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as wrapped,
    ):
        return wrapped.selected_alpn_protocol()


def test_a_certificate_that_is_made_at_the_start(tmp_path: Path) -> None:
    """No client can check it; Apache's Java and Go clients do not want to. openssl's s_client sees the choice, too."""
    with BrokerProcess(tmp_path / "store", *settings(test_mode_enable="true"), way=WAYS["engine"]) as broker:
        unchecked = ssl.create_default_context()
        unchecked.check_hostname, unchecked.verify_mode = False, ssl.CERT_NONE
        unchecked.set_alpn_protocols(BOTH)
        with (
            socket.create_connection(broker.address, 10) as plain,
            unchecked.wrap_socket(plain) as wrapped,
        ):
            assert wrapped.selected_alpn_protocol() == "h2"
            wrapped.sendall(opening())
            assert wrapped.recv(9)[3] == SETTINGS
        words = ["openssl", "s_client", "-connect", "{}:{}".format(*broker.address), "-alpn", "http/1.1,h2"]
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        assert "ALPN protocol: h2" in done.stdout
        assert broker.stop() == 0


@pytest.mark.parametrize("way", ["engine", "transports"])
def test_clients_certificates_and_clients_without_tls(
    tmp_path: Path, files: CertificateFiles, way: str
) -> None:
    arguments = (
        *files.arguments,
        *settings(server_mode="enforcing", server_need_client_auth="require", server_authClient="true"),
        *settings(server_trustCertPath=files.path("authority.pem")),
    )
    with BrokerProcess(tmp_path / "store", *arguments, way=WAYS[way]) as broker:
        with ClientSocket(broker.address, tls=files.client("client")) as connection:
            create_topic(connection, "T")
        assert code_at(broker.address, credentials(files, "client")) == "OK"
        assert refused_at(broker.address, credentials(files, "stranger"))[0] == "UNAVAILABLE"
        assert refused_at(broker.address, credentials(files))[0] == "UNAVAILABLE"
        assert refused_at(broker.address)[0] == "UNAVAILABLE"
        line = r"closed 127\.0\.0\.1:\d+: only TLS connections are accepted \(tls\.server\.mode=enforcing\)"
        eventually(lambda: re.search(line, broker.log.read_text()), what="the reason")
        assert broker.stop() == 0


def test_a_client_with_tls_where_there_is_none(tmp_path: Path, files: CertificateFiles) -> None:
    """Java's and Go's have it on by default: the log states what to do."""
    with BrokerProcess(tmp_path / "store", way=WAYS["engine"]) as broker:
        assert refused_at(broker.address, credentials(files))[0] == "UNAVAILABLE"
        eventually(lambda: "it speaks TLS, which is off here: set tls.server" in broker.log.read_text())
        assert broker.stop() == 0


# ---- where it is not served ----


@contextmanager
def name_server(folder: Path) -> Iterator[tuple[Address, Path]]:
    """Its address, and its log."""
    log, config = folder / "namesrv.log", folder / "namesrv.conf"
    config.write_text(f"kvConfigPath={folder / 'kv.json'}\n")
    command = [COMMAND, "namesrv", "--listen", "127.0.0.1:0", "--config", str(config)]
    with (
        log.open("wb") as errors,
        ForkedCommand(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        try:
            assert process.stdout is not None
            found = re.search(r"name server ([\d.]+):(\d+)", process.stdout.readline())
            assert found
            yield (found[1], int(found[2])), log
            process.terminate()
            assert process.wait(10) == 0
        finally:
            process.kill()


def test_a_name_server_alone_states_why(tmp_path: Path) -> None:
    with name_server(tmp_path) as (address, log):
        code, text = refused_at(address)
        assert (code, text.startswith("this name server has no broker")) == ("UNIMPLEMENTED", True)
        with GrpcCaller(address) as caller, pytest.raises(grpc.RpcError) as refused:
            caller.produce("T")
        assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED
        with ClientSocket(address) as connection:
            assert connection.ask(RequestCode.GET_BROKER_CLUSTER_INFO).code == 0
        assert "Traceback" not in log.read_text()


def without_protobuf(folder: Path) -> dict[str, str]:
    package = folder / "python" / "google" / "protobuf"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(PROTOBUF)
    return {"PYTHONPATH": str(folder / "python")}


def without_nghttp2(folder: Path) -> dict[str, str]:
    """The loader finds a file that is no library."""
    (folder / "library").mkdir()
    (folder / "library" / "libnghttp2.so.14").write_bytes(b"")
    return {"LD_LIBRARY_PATH": str(folder / "library")}


def test_a_broker_without_protobuf_serves_all_others(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "store", environment=without_protobuf(tmp_path)) as broker:
        assert "protobuf" not in broker.log.read_text()
        for _ in range(2):
            code, text = refused_at(broker.address)
            assert code == "UNIMPLEMENTED"
            assert re.fullmatch(
                r"clients of gRPC are not served: protobuf .*: pip install 'protobuf>=5'; .*", text
            )
        _serves_others(broker, "protobuf cannot be used")


def test_a_broker_without_libnghttp2_serves_all_others(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "store", environment=without_nghttp2(tmp_path)) as broker:
        assert "nghttp2" not in broker.log.read_text()
        for _ in range(2):
            assert refused_at(broker.address)[0] == "UNAVAILABLE"
        assert "it speaks HTTP/2, which is not served here" in broker.log.read_text()
        _serves_others(broker, "libnghttp2.so.14 is missing: install")


def _serves_others(broker: BrokerProcess, fault: str) -> None:
    """And has one line for what is missing."""
    with broker.connect() as connection:
        assert send(connection, "T", b"x").code == 0
    log = broker.log.read_text()
    lines = [line for line in log.splitlines() if fault in line]
    assert len(lines) == 1, lines
    assert "ERROR" in lines[0]
    assert "clients of gRPC are not served" in lines[0]
    assert "Traceback" not in log
    assert broker.stop() == 0


def test_the_default_port_is_left_out_if_it_is_in_use(tmp_path: Path) -> None:
    with closing(socket.socket()) as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind(("127.0.0.1", 8081))
            taken.listen()
        except OSError:
            pass  # another process has it
        with BrokerProcess(tmp_path / "store", *listening()) as broker:
            port = broker.address[1]
            line = f"clients of gRPC can use port {port} only: port 8081 on 127.0.0.1 is in use"
            assert line in broker.log.read_text()
            with broker.connect() as connection:
                create_topic(connection, "T")
            assert code_at(broker.address) == "OK"
            assert broker.stop() == 0


def test_no_port_of_its_own(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "store", *listening(grpc_port=0)) as broker:
        log = broker.log.read_text()
        assert "gRPC on" not in log
        assert "8081" not in log
        with broker.connect() as connection:
            create_topic(connection, "T")
        assert code_at(broker.address) == "OK"
        assert broker.stop() == 0


def test_a_port_that_another_option_needs_ends_the_start(tmp_path: Path) -> None:
    port = free_port()
    words = ("--listen", f"127.0.0.1:{port}", "--store", str(tmp_path / "store"))
    done = run_forked("broker", *words, "--set", f"grpcServerPort={port}")
    assert done.returncode != 0
    assert f"port {port} is needed twice, by --listen and by grpcServerPort" in done.stderr


def test_garbage_after_the_preface_ends_the_connection_alone(tmp_path: Path) -> None:
    with name_server(tmp_path) as (address, log):
        with socket.create_connection(address, 10) as connection:
            connection.sendall(PREFACE + bytes(100))
            while connection.recv(4096):
                pass
        assert refused_at(address)[0] == "UNIMPLEMENTED"
        assert "Traceback" not in log.read_text()
