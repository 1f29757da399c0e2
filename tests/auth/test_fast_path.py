"""The fast path checks the same as the complete path: every signature, every right, from the next request on."""

import _ssl
import base64
import hashlib
import hmac
import itertools
import json
import random
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from firearrow._native.fastpath.access_check import hmac_sha1, load_libcrypto
from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.auth.signatures import SIGNATURE, sign
from tests.auth.secured import SignedSocket, ask_ok, create_user, grant, secured
from tests.support.requests import pull_ext, send_ext, topic_ext
from tests.support.startup import constants

NO_PERMISSION = 16
STATEFUL = (
    "authenticationStrategy=org.apache.rocketmq.auth.authentication.strategy.StatefulAuthenticationStrategy"
)
FAST = ("fastPath=true", "fastSockets=true")


MISSING = "/no/library"


@pytest.fixture(params=["libcrypto", "python"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Signatures with libcrypto, and as where it is linked into the interpreter."""
    if request.param == "python":
        monkeypatch.setattr(_ssl, "__file__", MISSING)
    assert load_libcrypto() == (request.param == "libcrypto")
    yield
    monkeypatch.undo()
    assert load_libcrypto()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=200), st.lists(st.binary(max_size=300), max_size=6))
def test_hmac(library: None, secret: bytes, parts: list[bytes]) -> None:
    wanted = base64.b64encode(hmac.digest(secret, b"".join(parts), hashlib.sha1))
    assert hmac_sha1(secret, parts) == wanted


def test_every_length(library: None) -> None:
    data = bytes(range(256)) * 2
    for length in range(300):
        wanted = base64.b64encode(hmac.digest(data[:length], data[:length], hashlib.sha1))
        assert hmac_sha1(data[:length], [data[:length]]) == wanted


def test_the_example_of_the_protocol(library: None) -> None:
    content = b"rocketmq2PGTopicTestTBW10240017000000000000TAGS\x01TagA\x020falsefalsehello"
    assert hmac_sha1(b"12345678", [content]) == b"MFSPc53ati29DSBzxCT8WaC8o+U="


class Pair:
    """A Super user and one with rights on T for G."""

    def __init__(self, root: SignedSocket, app: SignedSocket) -> None:
        self.root, self.app = root, app
        self._numbers = itertools.count()
        ask_ok(root, RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext("T"))
        create_user(root, "app", "secret88")
        for resource, action in (("Topic:T", "Pub"), ("Topic:T", "Sub"), ("Group:CG", "Sub")):
            grant(root, "app", resource, "Pub", "Sub") if resource == "Topic:T" else grant(
                root, "app", resource, action
            )

    def counts(self) -> tuple[int, int, int]:
        """Sends by template and parsed, and pulls, that took the fast path, of all clients."""
        table = json.loads(self.root.ask(RequestCode.GET_BROKER_RUNTIME_INFO).body)["table"]
        found = [0, 0, 0]
        for name, text in table.items():
            if name.startswith("fastPath_"):
                words = text.replace(",", "").replace(";", "").split()
                found = [found[0] + int(words[1]), found[1] + int(words[3]), found[2] + int(words[8])]
        return found[0], found[1], found[2]

    def send(self, **more: str) -> RemotingCommand:
        properties = f"KEYS\x01k{random.random()}\x02TAGS\x01a\x02"
        ext = send_ext("T", i=properties, e=str(next(self._numbers) % 4)) | more
        return self.app.ask(RequestCode.SEND_MESSAGE_V2, ext, b"x" * random.randrange(1, 300))


@pytest.fixture(params=["stateless", "stateful", "without libcrypto"])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pair]:
    more = (STATEFUL,) if request.param == "stateful" else ()
    with ExitStack() as stack:
        environment = constants({"_ssl:__file__": 0}) if request.param == "without libcrypto" else None
        broker = stack.enter_context(secured(tmp_path / "store", *more, way=FAST, environment=environment))
        root = stack.enter_context(SignedSocket(broker.address))
        yield Pair(root, stack.enter_context(SignedSocket(broker.address, "app", "secret88")))


def test_signed_requests_take_the_fast_path(pair: Pair) -> None:
    for _ in range(50):
        assert pair.send().code == 0
    for n in range(10):
        assert pair.app.ask(RequestCode.PULL_MESSAGE, pull_ext("T", n)).code in (0, 19)
    templated, parsed, pulled = pair.counts()
    assert templated >= 45
    assert parsed >= 1
    assert pulled >= 5


def test_rules_count_from_the_next_request_on(pair: Pair) -> None:
    for _ in range(3):
        assert pair.send().code == 0
        assert pair.app.ask(RequestCode.PULL_MESSAGE, pull_ext("T")).code in (0, 19, 21)
    grant(pair.root, "app", "Topic:T", "Sub")
    answer = pair.send()
    assert (answer.code, answer.remark) == (
        NO_PERMISSION,
        "User:app has no permission to access Topic:T from 127.0.0.1, no matched policies.",
    )
    assert pair.app.ask(RequestCode.PULL_MESSAGE, pull_ext("T")).code != NO_PERMISSION
    assert pair.app.ask(RequestCode.PULL_MESSAGE, pull_ext("T", consumerGroup="G2")).code == NO_PERMISSION
    grant(pair.root, "app", "Group:CG", "Sub", decision="Deny")
    answer = pair.app.ask(RequestCode.PULL_MESSAGE, pull_ext("T"))
    assert answer.code == NO_PERMISSION
    assert answer.remark is not None
    assert answer.remark.endswith("the decision is deny.")
    grant(pair.root, "app", "Topic:T", "Pub")
    assert pair.send().code == 0
    ask_ok(pair.root, RequestCode.AUTH_UPDATE_USER, {"username": "app"}, {"userStatus": "disable"})
    assert pair.send().remark == "User:app is disabled."
    ask_ok(
        pair.root,
        RequestCode.AUTH_UPDATE_USER,
        {"username": "app"},
        {"userStatus": "enable", "password": "new"},
    )
    assert pair.send().remark == "check signature failed."
    pair.app.password = "new"
    assert pair.send().code == 0
    ask_ok(pair.root, RequestCode.AUTH_DELETE_USER, {"username": "app"})
    assert pair.send().remark == "User:app is not found."


def test_another_user_of_the_connection_is_another_user(pair: Pair) -> None:
    assert pair.send().code == 0
    pair.app.user, pair.app.password = "rocketmq", "guess"
    assert pair.send().remark == "check signature failed."
    pair.app.user, pair.app.password = "", ""
    assert pair.send().remark == "username cannot be null."
    pair.app.user, pair.app.password = "app", "secret88"
    assert pair.send().code == 0
    assert pair.send(b="Unknown").code == NO_PERMISSION


def test_the_right_to_send_to_a_topic_is_none_to_pull_another(pair: Pair) -> None:
    """The topic `T\\0CG`, which a binary header can name, is not the topic T pulled for the group CG."""
    assert pair.send().code == 0
    assert pair.app.ask(RequestCode.PULL_MESSAGE, pull_ext("T")).code == 0
    create_user(pair.root, "sender", "secret88")
    grant(pair.root, "sender", "Topic:*", "Pub")
    pair.app.user = "sender"
    binary = 1
    assert pair.send().code == 0
    pair.app.ask(RequestCode.SEND_MESSAGE_V2, send_ext("T\0CG"), b"x", serializer=binary)
    answer = pair.app.ask(RequestCode.PULL_MESSAGE, pull_ext("T"), serializer=binary)
    assert answer.code == NO_PERMISSION


@pytest.mark.parametrize("field", ["a", "b", "e", "g", "i", "m", "extra", "body", "signature", "none"])
def test_each_changed_part_is_refused(tmp_path: Path, field: str) -> None:
    with secured(tmp_path / "store", way=FAST) as broker, SignedSocket(broker.address) as root:
        pair = Pair(root, SignedSocket(broker.address, "app", "secret88"))
        grant(pair.root, "app", "Topic:*", "All")
        for _ in range(5):
            assert pair.send().code == 0
        command = RemotingCommand(
            RequestCode.SEND_MESSAGE_V2, send_ext("T", i="KEYS\x01k\x02TAGS\x01a\x02"), b"body"
        )
        sign(command, "app", "secret88")
        if field == "body":
            command.body = b"bodx"
        elif field == "signature":
            command.ext[SIGNATURE] = base64.b64encode(bytes(20)).decode()
        elif field == "none":
            del command.ext[SIGNATURE]
        else:
            command.ext[field] = {
                "b": "U",
                "e": "1",
                "g": "1",
                "i": "KEYS\x01l\x02TAGS\x01a\x02",
                "m": "true",
            }.get(field, "x")
        pair.app.user = ""
        answer = pair.app.answer_to(pair.app.send(command))
        assert (answer.code, answer.remark) == (NO_PERMISSION, "check signature failed.")
        pair.app.close()
