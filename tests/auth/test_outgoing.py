"""A broker signs its own requests to a name server where users have to log in."""

import time
from pathlib import Path

from firearrow._native.wire.codes import RequestCode
from tests.auth.secured import SignedSocket, options, secured
from tests.support.broker_process import BrokerProcess

INNER = 'innerClientAuthenticationCredentials={"accessKey":"rocketmq","secretKey":"%s"}'


def test_a_broker_registers_with_its_keys(tmp_path: Path) -> None:
    with secured(tmp_path / "names") as names, SignedSocket(names.address) as root:
        assert names.name_server is not None
        at = "{}:{}".format(*names.name_server)

        def registered(name: str, secret: str) -> bool:
            inner = ("--set", INNER % secret, "--set", f"brokerName={name}", "--namesrv", at)
            arguments = (*options(), *inner, "--namesrv-listen", "off")
            deadline = time.monotonic() + 10
            with BrokerProcess(tmp_path / name, *arguments) as broker:
                while time.monotonic() < deadline:
                    if name.encode() in root.ask(RequestCode.GET_BROKER_CLUSTER_INFO).body:
                        return True
                    if "check signature failed" in names.log.read_text() + broker.log.read_text():
                        return False
                    time.sleep(0.05)
            raise AssertionError("neither registered nor refused")

        assert registered("with-keys", "12345678")
        assert not registered("wrong-keys", "87654321")
