"""A broker that checks users and rules, and connections that sign their requests."""

import json
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.auth.signatures import sign
from tests.support.broker_process import WAY, BrokerProcess
from tests.support.client_socket import ClientSocket

ROOT, ROOT_PASSWORD = "rocketmq", "12345678"
INITIAL = json.dumps({"username": ROOT, "password": ROOT_PASSWORD})
CLUSTER = "DefaultCluster"


class SignedSocket(ClientSocket):
    """Signs each request; "": sends them as they are."""

    def __init__(
        self,
        address: tuple[str, int],
        user: str = ROOT,
        password: str = ROOT_PASSWORD,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(address, tls=tls)
        self.user, self.password = user, password

    def send(self, command: RemotingCommand) -> int:
        if self.user:
            sign(command, self.user, self.password)
        return super().send(command)


def options(*more: str, authorization: bool = True) -> tuple[str, ...]:
    """Arguments of a broker whose only user is ROOT."""
    pairs = (
        "authenticationEnabled=true",
        f"authorizationEnabled={str(authorization).lower()}",
        f"initAuthenticationUser={INITIAL}",
        *more,
    )
    return tuple(word for pair in pairs for word in ("--set", pair))


@contextmanager
def secured(
    store: Path,
    *more: str,
    authorization: bool = True,
    way: tuple[str, ...] = WAY,
    environment: Mapping[str, str] | None = None,
) -> Iterator[BrokerProcess]:
    with BrokerProcess(
        store, *options(*more, authorization=authorization), way=way, environment=environment
    ) as broker:
        yield broker


def ask_ok(connection: ClientSocket, code: int, ext: dict[str, str], body: object = None) -> RemotingCommand:
    answer = connection.ask(code, ext, b"" if body is None else json.dumps(body).encode())
    assert answer.code == 0, (code, answer.code, answer.remark)
    return answer


def create_user(root: ClientSocket, name: str, password: str, kind: str = "Normal") -> None:
    info = {"username": name, "password": password, "userType": kind}
    ask_ok(root, RequestCode.AUTH_CREATE_USER, {"username": name}, info)


def grant(
    root: ClientSocket,
    name: str,
    resource: str,
    *actions: str,
    decision: str = "Allow",
    sources: tuple[str, ...] = (),
) -> None:
    entry: dict[str, object] = {"resource": resource, "actions": list(actions), "decision": decision}
    if sources:
        entry["sourceIps"] = list(sources)
    body = {"subject": f"User:{name}", "policies": [{"entries": [entry]}]}
    ask_ok(root, RequestCode.AUTH_UPDATE_ACL, {"subject": f"User:{name}"}, body)


def revoke_all(root: ClientSocket, name: str) -> None:
    root.ask(RequestCode.AUTH_DELETE_ACL, {"subject": f"User:{name}"})
