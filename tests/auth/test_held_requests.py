"""A held pull, pop or notification whose right is revoked while it waits is refused instead of answered."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from firearrow._native.wire.codes import RequestCode
from tests.auth.secured import SignedSocket, ask_ok, create_user, grant, revoke_all, secured
from tests.integration.pops import GROUP, pop_ext
from tests.support.broker_process import WAYS
from tests.support.requests import SUBSCRIPTION, SUSPEND, pull_ext, send_ext, topic_ext


def _pull(**more: str) -> dict[str, str]:
    return pull_ext("T", consumerGroup=GROUP, **more)


Ext = dict[str, str]
WAITING: dict[str, Callable[[], tuple[int, Ext]]] = {
    "pull": lambda: (
        RequestCode.PULL_MESSAGE,
        _pull(sysFlag=str(SUSPEND | SUBSCRIPTION), suspendTimeoutMillis="20000"),
    ),
    "pop": lambda: (RequestCode.POP_MESSAGE, pop_ext("T", pollTime="20000")),
    "notification": lambda: (
        RequestCode.NOTIFICATION,
        {"consumerGroup": GROUP, "topic": "T", "queueId": "-1", "pollTime": "20000"},
    ),
}
NO_PERMISSION = 16
NOT_MATCHED = "User:app has no permission to access Topic:T from 127.0.0.1, no matched policies."


def _disable(root: SignedSocket) -> None:
    ask_ok(root, RequestCode.AUTH_UPDATE_USER, {"username": "app"}, {"userStatus": "disable"})


def _delete(root: SignedSocket) -> None:
    ask_ok(root, RequestCode.AUTH_DELETE_USER, {"username": "app"})


def _change_password(root: SignedSocket) -> None:
    ask_ok(root, RequestCode.AUTH_UPDATE_USER, {"username": "app"}, {"password": "another"})


ENDS: dict[str, tuple[Callable[[SignedSocket], None], str]] = {
    "revoked": (lambda root: revoke_all(root, "app"), NOT_MATCHED),
    "disabled": (_disable, "User:app is disabled."),
    "deleted": (_delete, "User:app is not found."),
    "new password": (_change_password, "check signature failed."),
}


class Waiters:
    """A Super user, and two users that may consume T for GROUP, each on a connection of its own."""

    def __init__(self, root: SignedSocket, app: SignedSocket, other: SignedSocket) -> None:
        self.root, self.app, self.other = root, app, other
        ask_ok(root, RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext("T"))
        for socket in (app, other):
            create_user(root, socket.user, socket.password)
            grant(root, socket.user, "Topic:T", "Sub")
            grant(root, socket.user, f"Group:{GROUP}", "Sub")
            # the first request of a connection logs in: later ones may take the fast path
            assert socket.ask(RequestCode.PULL_MESSAGE, _pull()).code != NO_PERMISSION

    def send(self) -> None:
        assert self.root.ask(RequestCode.SEND_MESSAGE_V2, send_ext("T"), b"secret").code == 0

    def await_held(self, socket: SignedSocket) -> None:
        """The requests that the connection sent before are held: one that needs no waiting is answered."""
        assert socket.ask(RequestCode.PULL_MESSAGE, _pull()).code != NO_PERMISSION


@pytest.fixture(params=WAYS)
def waiters(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Waiters]:
    with ExitStack() as stack:
        broker = stack.enter_context(secured(tmp_path / "store", way=WAYS[request.param]))
        users = (("rocketmq", "12345678"), ("app", "secret88"), ("other", "secret99"))
        root, app, other = (
            stack.enter_context(SignedSocket(broker.address, name, password)) for name, password in users
        )
        yield Waiters(root, app, other)


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("kind", WAITING)
def test_it_is_refused_when_messages_arrive(waiters: Waiters, kind: str, end: str) -> None:
    code, ext = WAITING[kind]()
    opaque = waiters.app.send_request(code, ext)
    waiters.await_held(waiters.app)
    change, remark = ENDS[end]
    change(waiters.root)
    waiters.send()
    answer = waiters.app.answer_to(opaque)
    assert (answer.code, answer.remark, answer.body) == (NO_PERMISSION, remark, b"")


@pytest.mark.parametrize("kind", WAITING)
def test_the_messages_go_to_the_next_one(waiters: Waiters, kind: str) -> None:
    code, ext = WAITING[kind]()
    refused = waiters.app.send_request(code, ext)
    waiters.await_held(waiters.app)
    served = waiters.other.send_request(code, ext)
    waiters.await_held(waiters.other)
    revoke_all(waiters.root, "app")
    waiters.send()
    assert waiters.app.answer_to(refused).code == NO_PERMISSION
    answer = waiters.other.answer_to(served)
    assert answer.code == 0
    assert b"secret" in answer.body or answer.ext.get("hasMsg") == "true"


def test_it_is_refused_at_its_deadline(waiters: Waiters) -> None:
    code, ext = WAITING["pull"]()
    opaque = waiters.app.send_request(code, ext | {"suspendTimeoutMillis": "300"})
    waiters.await_held(waiters.app)
    revoke_all(waiters.root, "app")
    answer = waiters.app.answer_to(opaque)
    assert (answer.code, answer.remark) == (NO_PERMISSION, NOT_MATCHED)


@pytest.mark.parametrize("kind", WAITING)
def test_one_with_a_body_is_answered_after_a_change(waiters: Waiters, kind: str) -> None:
    """The body was signed, too, and is not kept while the request waits."""
    code, ext = WAITING[kind]()
    opaque = waiters.app.send_request(code, ext, b"signed as well")
    waiters.await_held(waiters.app)
    revoke_all(waiters.root, "other")
    waiters.send()
    answer = waiters.app.answer_to(opaque)
    assert answer.code == 0, answer.remark
    assert b"secret" in answer.body or answer.ext.get("hasMsg") == "true"


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("kind", WAITING)
def test_one_with_a_body_is_refused(waiters: Waiters, kind: str, end: str) -> None:
    code, ext = WAITING[kind]()
    opaque = waiters.app.send_request(code, ext, b"signed as well")
    waiters.await_held(waiters.app)
    change, remark = ENDS[end]
    change(waiters.root)
    waiters.send()
    answer = waiters.app.answer_to(opaque)
    assert (answer.code, answer.remark, answer.body) == (NO_PERMISSION, remark, b"")


@pytest.mark.parametrize("kind", WAITING)
def test_a_change_for_others_does_not_matter(waiters: Waiters, kind: str) -> None:
    code, ext = WAITING[kind]()
    opaque = waiters.app.send_request(code, ext)
    waiters.await_held(waiters.app)
    revoke_all(waiters.root, "other")
    waiters.send()
    answer = waiters.app.answer_to(opaque)
    assert answer.code == 0
    assert b"secret" in answer.body or answer.ext.get("hasMsg") == "true"
