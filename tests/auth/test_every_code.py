"""Every request code has a rule, and each missing right is refused by name; with all of them, it is served."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.auth.request_rights import CLOSED, RULES
from tests.auth.every_code import CASES, Case, encoded
from tests.auth.rules_table import PROTOCOL, document
from tests.auth.secured import SignedSocket, create_user, grant, revoke_all, secured
from tests.support.requests import send_ext, topic_ext

NO_PERMISSION = 16
NOT_SERVED = 3


class Users:
    """`root` may do everything, `app` what it is granted. `facts`: what `{…}` in cases stands for."""

    def __init__(self, root: SignedSocket, app: SignedSocket, facts: dict[str, str]) -> None:
        self.root, self.app, self.facts = root, app, facts

    def ask(self, code: int, case: Case) -> RemotingCommand:
        ext = {name: self.facts.get(value, value) for name, value in case.ext.items()}
        return self.app.ask(code, ext, encoded(case.body))

    def grant_only(self, rights: list[tuple[str, str]]) -> None:
        revoke_all(self.root, "app")
        for resource, action in rights:
            grant(self.root, "app", resource, action)


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Users]:
    store = tmp_path_factory.mktemp("every") / "store"
    with ExitStack() as stack:
        broker = stack.enter_context(secured(store))
        root = stack.enter_context(SignedSocket(broker.address))
        create_user(root, "app", "secret88")
        create_user(root, "u", "p")
        for topic in ("T", "T2"):
            assert root.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext(topic)).code == 0
        half = send_ext("T", i="TRAN_MSG\x01true\x02PGROUP\x01P\x02", f="4")
        facts = {}
        for name, ext in (("{half", half), ("{", send_ext("T"))):
            answer = root.ask(RequestCode.SEND_MESSAGE_V2, ext, b"x")
            assert answer.code == 0, answer.remark
            offset = int(answer.ext["msgId"][-16:], 16)
            facts[f"{name}_id}}" if name != "{" else "{id}"] = answer.ext["msgId"]
            facts[f"{name}}}" if name != "{" else "{offset}"] = str(offset)
        app = stack.enter_context(SignedSocket(broker.address, "app", "secret88"))
        yield Users(root, app, facts)


def test_the_table_is_complete(users: Users) -> None:
    """Every code that the broker or its name server serves is in RULES and in CASES."""
    served = {
        code
        for code in RequestCode
        if users.root.ask(code).code != NOT_SERVED  # whatever else it answers
    }
    assert served - RULES.keys() == set()
    assert served - CASES.keys() == set()
    assert CASES.keys() <= RULES.keys()


def test_the_document_is_current() -> None:
    assert PROTOCOL.read_text("utf-8") == document(), "run python -m tests.auth.rules_table"
    assert RULES.keys() >= CLOSED


@pytest.mark.parametrize("code", sorted(CASES), ids=lambda code: RequestCode(code).name)
def test_each_missing_right_is_refused(users: Users, code: int) -> None:
    for case in CASES[code]:
        needs = list(case.needs)
        for missing in needs:
            users.grant_only([right for right in needs if right != missing])
            answer = users.ask(code, case)
            assert answer.code == NO_PERMISSION, (missing, answer.remark)
            by_place = "topic" not in case.ext and any("{" in value for value in case.ext.values())
            what = "the topic of this message" if by_place and missing[0] == "Topic:T" else missing[0]
            text = f"User:app has no permission to access {what} from 127.0.0.1, no matched policies."
            assert answer.remark == text
        users.grant_only(needs)
        answer = users.ask(code, case)
        assert "has no permission to access" not in (answer.remark or ""), (code, answer.remark)


@pytest.mark.parametrize("code", sorted(CASES), ids=lambda code: RequestCode(code).name)
def test_nobody_is_served_without_a_login(users: Users, code: int) -> None:
    users.app.user = ""
    try:
        answer = users.ask(code, CASES[code][0])
    finally:
        users.app.user = "app"
    assert (answer.code, answer.remark) == (NO_PERMISSION, "username cannot be null.")


def test_a_deny_beats_what_is_allowed_more_widely(users: Users) -> None:
    users.grant_only([("Topic:*", "All"), ("Group:*", "All")])
    for code in (RequestCode.SEND_MESSAGE_V2, RequestCode.PULL_MESSAGE):
        assert users.ask(code, CASES[code][0]).code != NO_PERMISSION
    grant(users.root, "app", "Topic:T", "Pub", "Sub", decision="Deny")
    for code in (RequestCode.SEND_MESSAGE_V2, RequestCode.PULL_MESSAGE):
        answer = users.ask(code, CASES[code][0])
        assert answer.code == NO_PERMISSION
        assert (
            answer.remark
            == "User:app has no permission to access Topic:T from 127.0.0.1, the decision is deny."
        )


def test_one_way_requests_are_refused_without_an_answer(users: Users) -> None:
    users.grant_only([])
    command = RemotingCommand.request(RequestCode.UPDATE_BROKER_CONFIG, {}, b"traceOn=false", oneway=True)
    users.app.send(command)
    assert users.app.ask(RequestCode.GET_BROKER_CONFIG).code == NO_PERMISSION
    assert b"traceOn=true" in users.root.ask(RequestCode.GET_BROKER_CONFIG).body


def test_a_foreign_half_message_cannot_be_ended_under_an_own_topic(users: Users) -> None:
    users.grant_only([("Topic:Own", "Pub")])
    case = CASES[RequestCode.END_TRANSACTION][0]
    answer = users.ask(RequestCode.END_TRANSACTION, case._replace(ext=case.ext | {"topic": "Own"}))
    assert answer.code == NO_PERMISSION
    assert answer.remark is not None
    assert "the topic of this message" in answer.remark
