"""`firearrow tls init`: a broker with its certificate, checked by clients with its authority."""

import os
import ssl
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from firearrow._native.wire.codes import RequestCode
from tests.support.broker_process import BrokerProcess
from tests.support.certificates import settings
from tests.support.client_socket import ClientSocket
from tests.support.fork_server import run_forked


def init(folder: Path, *names: str) -> subprocess.CompletedProcess[str]:
    return run_forked("tls", "init", *names, "--dir", str(folder))


def context(folder: Path) -> ssl.SSLContext:
    made = ssl.create_default_context(cafile=str(folder / "authority.pem"))
    made.load_cert_chain(folder / "client.pem", folder / "client.key")
    return made


def test_a_broker_with_it(tmp_path: Path) -> None:
    folder = tmp_path / "tls"
    done = init(folder, "broker.example")
    assert (done.returncode, "--tls-cert" in done.stderr) == (0, True)
    assert "broker.example" in done.stdout
    for name in ("authority.key", "server.key", "client.key"):
        assert stat.S_IMODE((folder / name).stat().st_mode) == 0o600
    arguments = (
        *("--tls-cert", str(folder / "server.pem"), "--tls-key", str(folder / "server.key")),
        *settings(server_mode="enforcing", server_need_client_auth="require", server_authClient="true"),
        *settings(server_trustCertPath=str(folder / "authority.pem")),
    )
    first = context(folder)
    with BrokerProcess(tmp_path / "store", *arguments) as running:
        with ClientSocket(running.address, tls=first) as connection:
            assert connection.ask(RequestCode.GET_BROKER_RUNTIME_INFO).code == 0
        authority = (folder / "authority.pem").read_bytes()
        assert init(folder).returncode == 0
        assert (folder / "authority.pem").read_bytes() == authority
        with ClientSocket(running.address, tls=context(folder)) as connection:
            assert connection.ask(RequestCode.GET_BROKER_RUNTIME_INFO).code == 0


def test_a_command_with_a_context_that_has_tls(tmp_path: Path) -> None:
    folder = tmp_path / "tls"
    assert init(folder).returncode == 0
    arguments = "--tls-cert", str(folder / "server.pem"), "--tls-key", str(folder / "server.key")
    with BrokerProcess(tmp_path / "store", *arguments, *settings(server_mode="enforcing")) as running:
        assert running.name_server is not None
        servers = "{}:{}".format(*running.name_server)
        authority = "--authority", str(folder / "authority.pem")
        for words in (["secure", *authority], ["wrong", "--tls"]):
            added = firearrow(tmp_path, "context", "add", *words, "-n", servers)
            assert (added.returncode, added.stderr) == (0, "")
        done = listed(tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
        done = listed(tmp_path, "--context", "wrong")
        assert (done.returncode, "CERTIFICATE_VERIFY_FAILED" in done.stderr) == (3, True)
        for words, fault in (
            (["--key", str(folder / "client.key")], "needs TlsOptions.certificate"),
            (["--authority", str(folder / "nobody.pem")], "nobody.pem cannot be read: No such file"),
        ):
            refused = firearrow(tmp_path, "context", "add", "no", *words, "-n", servers)
            assert (refused.returncode, fault in refused.stderr) == (2, True)


def listed(config: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return firearrow(config, "topic", "list", "--all", *words)


def firearrow(config: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return run_forked(*words, timeout=60, environment=os.environ | {"XDG_CONFIG_HOME": str(config)})


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = init(tmp_path / "file")
    assert (done.returncode, "cannot write to" in done.stderr) == (2, True)


@pytest.mark.parametrize("name", ["authority.pem", "authority.key"])
def test_half_an_authority_is_not_replaced(tmp_path: Path, name: str) -> None:
    assert init(tmp_path).returncode == 0
    (tmp_path / name).rename(tmp_path / "away")
    done = init(tmp_path)
    assert (done.returncode, f"{name} is missing: restore it" in done.stderr) == (2, True)
    (tmp_path / "away").rename(tmp_path / name)
    assert init(tmp_path).returncode == 0


def without_the_package(folder: Path, *names: str, **environment: str) -> subprocess.CompletedProcess[str]:
    code = (
        "from firearrow._native.base import certificates\n"
        "certificates.find_spec = lambda name: None\n"
        "from firearrow.client.cli.main import main; main()"
    )
    command = [sys.executable, "-c", code, "tls", "init", *names, "--dir", str(folder)]
    environment = os.environ | environment
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)


def test_without_the_package_and_openssl(tmp_path: Path) -> None:
    done = without_the_package(tmp_path / "tls", PATH=str(tmp_path))
    assert (done.returncode, "apt install openssl" in done.stderr) == (2, True)


def test_by_the_command_openssl(tmp_path: Path) -> None:
    """A certificate of either way is signed by an authority of the other."""
    first, second = tmp_path / "first", tmp_path / "second"
    assert without_the_package(first).returncode == 0
    assert init(first, "broker.example").returncode == 0
    assert init(second).returncode == 0
    assert without_the_package(second, "broker.example").returncode == 0
    assert stat.S_IMODE((second / "server.key").stat().st_mode) == 0o600
    for folder in (first, second):
        arguments = (
            *("--tls-cert", str(folder / "server.pem"), "--tls-key", str(folder / "server.key")),
            *settings(server_mode="enforcing", server_need_client_auth="require", server_authClient="true"),
            *settings(server_trustCertPath=str(folder / "authority.pem")),
        )
        with (
            BrokerProcess(tmp_path / folder.name / "store", *arguments) as running,
            ClientSocket(running.address, tls=context(folder)) as connection,
        ):
            assert connection.ask(RequestCode.GET_BROKER_RUNTIME_INFO).code == 0


@pytest.mark.parametrize("name", ["a\nb", "$HOME", "a'b", 'a"b', "a#b", "a b", ""])
def test_words_that_are_no_names_of_hosts(tmp_path: Path, name: str) -> None:
    done = init(tmp_path / "tls", name)
    assert (done.returncode, "is not a host name or address" in done.stderr) == (2, True)
