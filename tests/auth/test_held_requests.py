"""A held pull, pop or notification whose right is revoked while it waits is refused instead of answered; a pop of lite
topics, too."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from firearrow._native.wire.codes import RequestCode
from tests.auth.secured import SignedSocket, ask_ok, create_user, grant, revoke_all, secured
from tests.integration.pops import GROUP, pop_ext
from tests.support.broker_process import WAYS, BrokerProcess
from tests.support.requests import SUBSCRIPTION, SUSPEND, pull_ext, send_ext, topic_ext

_numbers = itertools.count(1)


def _pull(topic: str, **more: str) -> dict[str, str]:
    return pull_ext(topic, consumerGroup=GROUP, **more)


Ext = dict[str, str]
WAITING: dict[str, Callable[[str], tuple[int, Ext]]] = {
    "pull": lambda topic: (
        RequestCode.PULL_MESSAGE,
        _pull(topic, sysFlag=str(SUSPEND | SUBSCRIPTION), suspendTimeoutMillis="20000"),
    ),
    "pop": lambda topic: (RequestCode.POP_MESSAGE, pop_ext(topic, pollTime="20000")),
    "notification": lambda topic: (
        RequestCode.NOTIFICATION,
        {"consumerGroup": GROUP, "topic": topic, "queueId": "-1", "pollTime": "20000"},
    ),
    "lite pop": lambda topic: (
        RequestCode.POP_LITE_MESSAGE,
        {
            "topic": topic,
            "consumerGroup": f"{topic}-lite",
            "clientId": CLIENT,
            "maxMsgNum": "1",
            "invisibleTime": "60000",
            "pollTime": "20000",
        },
    ),
}
CLIENT = "of both connections"
LMQS = "enableLmq=true", "enableMultiDispatch=true"
NO_PERMISSION = 16
NOT_MATCHED = "User:{app} has no permission to access Topic:{topic} from 127.0.0.1, no matched policies."


def _disable(root: SignedSocket, user: str) -> None:
    ask_ok(root, RequestCode.AUTH_UPDATE_USER, {"username": user}, {"userStatus": "disable"})


def _delete(root: SignedSocket, user: str) -> None:
    ask_ok(root, RequestCode.AUTH_DELETE_USER, {"username": user})


def _change_password(root: SignedSocket, user: str) -> None:
    ask_ok(root, RequestCode.AUTH_UPDATE_USER, {"username": user}, {"password": "another"})


ENDS: dict[str, tuple[Callable[[SignedSocket, str], None], str]] = {
    "revoked": (revoke_all, NOT_MATCHED),
    "disabled": (_disable, "User:{app} is disabled."),
    "deleted": (_delete, "User:{app} is not found."),
    "new password": (_change_password, "check signature failed."),
}


class Waiters:
    """A Super user, and two users that may consume `topic` for GROUP, each on a connection of its own."""

    def __init__(self, topic: str, root: SignedSocket, app: SignedSocket, other: SignedSocket) -> None:
        self.topic, self.root, self.app, self.other = topic, root, app, other
        attributes = {"attributes": "+message.type=LITE"}
        ask_ok(root, RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext(topic) | attributes)
        group = {"groupName": f"{topic}-lite", "attributes": {"+lite.bind.topic": topic}}
        ask_ok(root, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, group)
        entry = {"clientId": CLIENT, "group": f"{topic}-lite", "topic": topic, "liteTopicSet": ["l"]}
        body = {"subscriptionSet": [entry | {"action": "PARTIAL_ADD"}]}
        ask_ok(root, RequestCode.LITE_SUBSCRIPTION_CTL, {}, body)
        for socket in (app, other):
            create_user(root, socket.user, socket.password)
            grant(root, socket.user, f"Topic:{topic}", "Sub")
            grant(root, socket.user, f"Group:{GROUP}", "Sub")
            grant(root, socket.user, f"Group:{topic}-lite", "Sub")
            # the first request of a connection logs in: later ones may take the fast path
            assert socket.ask(RequestCode.PULL_MESSAGE, _pull(topic)).code != NO_PERMISSION

    def send(self) -> None:
        ext = send_ext(self.topic, i="__LITE_TOPIC\x01l\x02")
        assert self.root.ask(RequestCode.SEND_MESSAGE_V2, ext, b"secret").code == 0

    def await_held(self, socket: SignedSocket) -> None:
        """The requests that the connection sent before are held: one that needs no waiting is answered."""
        assert socket.ask(RequestCode.PULL_MESSAGE, _pull(self.topic)).code != NO_PERMISSION

    def worded(self, remark: str) -> str:
        """`remark` with this test's names."""
        return remark.format(app=self.app.user, topic=self.topic)


@pytest.fixture(scope="module", params=WAYS)
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    with secured(tmp_path_factory.mktemp("held") / "store", *LMQS, way=WAYS[request.param]) as running:
        yield running


@pytest.fixture
def waiters(broker: BrokerProcess) -> Iterator[Waiters]:
    """Each test has a topic and users of its own."""
    number = next(_numbers)
    users = ((f"app{number}", "secret88"), (f"other{number}", "secret99"))
    with ExitStack() as stack:
        root = stack.enter_context(SignedSocket(broker.address))
        app, other = (stack.enter_context(SignedSocket(broker.address, *user)) for user in users)
        yield Waiters(f"T{number}", root, app, other)


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("kind", WAITING)
def test_it_is_refused_when_messages_arrive(waiters: Waiters, kind: str, end: str) -> None:
    code, ext = WAITING[kind](waiters.topic)
    opaque = waiters.app.send_request(code, ext)
    waiters.await_held(waiters.app)
    change, remark = ENDS[end]
    change(waiters.root, waiters.app.user)
    waiters.send()
    answer = waiters.app.answer_to(opaque)
    assert (answer.code, answer.remark, answer.body) == (NO_PERMISSION, waiters.worded(remark), b"")


@pytest.mark.parametrize("kind", WAITING)
def test_the_messages_go_to_the_next_one(waiters: Waiters, kind: str) -> None:
    code, ext = WAITING[kind](waiters.topic)
    refused = waiters.app.send_request(code, ext)
    waiters.await_held(waiters.app)
    served = waiters.other.send_request(code, ext)
    waiters.await_held(waiters.other)
    revoke_all(waiters.root, waiters.app.user)
    waiters.send()
    assert waiters.app.answer_to(refused).code == NO_PERMISSION
    answer = waiters.other.answer_to(served)
    assert answer.code == 0
    assert b"secret" in answer.body or answer.ext.get("hasMsg") == "true"


def test_it_is_refused_at_its_deadline(waiters: Waiters) -> None:
    code, ext = WAITING["pull"](waiters.topic)
    opaque = waiters.app.send_request(code, ext | {"suspendTimeoutMillis": "300"})
    waiters.await_held(waiters.app)
    revoke_all(waiters.root, waiters.app.user)
    answer = waiters.app.answer_to(opaque)
    assert (answer.code, answer.remark) == (NO_PERMISSION, waiters.worded(NOT_MATCHED))


@pytest.mark.parametrize("kind", WAITING)
def test_one_with_a_body_is_answered_after_a_change(waiters: Waiters, kind: str) -> None:
    """The body was signed, too, and is not kept while the request waits."""
    code, ext = WAITING[kind](waiters.topic)
    opaque = waiters.app.send_request(code, ext, b"signed as well")
    waiters.await_held(waiters.app)
    revoke_all(waiters.root, waiters.other.user)
    waiters.send()
    answer = waiters.app.answer_to(opaque)
    assert answer.code == 0, answer.remark
    assert b"secret" in answer.body or answer.ext.get("hasMsg") == "true"


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("kind", WAITING)
def test_one_with_a_body_is_refused(waiters: Waiters, kind: str, end: str) -> None:
    code, ext = WAITING[kind](waiters.topic)
    opaque = waiters.app.send_request(code, ext, b"signed as well")
    waiters.await_held(waiters.app)
    change, remark = ENDS[end]
    change(waiters.root, waiters.app.user)
    waiters.send()
    answer = waiters.app.answer_to(opaque)
    assert (answer.code, answer.remark, answer.body) == (NO_PERMISSION, waiters.worded(remark), b"")


@pytest.mark.parametrize("kind", WAITING)
def test_a_change_for_others_does_not_matter(waiters: Waiters, kind: str) -> None:
    code, ext = WAITING[kind](waiters.topic)
    opaque = waiters.app.send_request(code, ext)
    waiters.await_held(waiters.app)
    revoke_all(waiters.root, waiters.other.user)
    waiters.send()
    answer = waiters.app.answer_to(opaque)
    assert answer.code == 0
    assert b"secret" in answer.body or answer.ext.get("hasMsg") == "true"
