"""`firearrow user`: what it does at a broker, and that `check` says what the broker then does."""

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from firearrow._native.wire.codes import RequestCode
from firearrow.client.cli.cluster.user import main
from firearrow.client.cli.contexts import Context, Contexts, save_contexts
from tests.auth.secured import CLUSTER, ROOT, ROOT_PASSWORD, SignedSocket, create_user, grant, secured
from tests.support.command_line import process
from tests.support.requests import pull_ext, send_ext, topic_ext

Run = Callable[..., tuple[int, list[dict[str, Any]], str]]


@pytest.fixture
def user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Run]:
    """Runs the command as ROOT: its exit code, its rows, its errors. `stdin`: what is typed."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    with secured(tmp_path / "store") as broker, SignedSocket(broker.address) as root:
        assert root.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext("orders")).code == 0
        assert broker.name_server is not None
        context = Context(
            namesrv="{}:{}".format(*broker.name_server), access_key=ROOT, secret_key=ROOT_PASSWORD
        )
        save_contexts(Contexts("here", {"here": context}))
        monkeypatch.setattr(root, "user", "app")
        monkeypatch.setattr(root, "password", "app-word")

        def run(line: str, stdin: str = "") -> tuple[int, list[dict[str, Any]], str]:
            monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
            try:
                code = main(line.split())
            except SystemExit as exit_:
                code = int(exit_.code or 0)
            printed = capsys.readouterr()
            return code, [json.loads(row) for row in printed.out.splitlines()], printed.err

        run.app = root  # type: ignore[attr-defined]
        yield run


def test_users_and_rules(user: Run) -> None:
    app: SignedSocket = user.app  # type: ignore[attr-defined]

    def sends() -> int:
        return app.ask(RequestCode.SEND_MESSAGE_V2, send_ext("orders"), b"x").code

    assert user("add app", "app-word\n")[0] == 0
    assert user("add app", "app-word\n")[0] == 1
    assert [(row["user"], row["type"]) for row in user("list")[1]] == [("app", "Normal"), (ROOT, "Super")]
    assert (user("check app send orders")[0], sends()) == (1, 16)
    assert user("grant app Topic:ord* Pub,Sub")[0] == 0
    assert (user("check app send orders")[0], sends()) == (0, 0)
    code, [row], _ = user("check app read orders --group G")
    assert (code, row["allowed"]) == (1, "no")
    answer = app.ask(RequestCode.PULL_MESSAGE, pull_ext("orders", consumerGroup="G"))
    assert row["why"] == answer.remark
    assert user("grant app Topic:orders Pub --deny --from 10.0.0.0/8")[0] == 0
    assert user("check app send orders --from 10.1.2.3")[0] == 1
    assert (user("check app send orders")[0], sends()) == (0, 0)
    rules = user("list app")[1]
    assert [(rule["resource"], rule["actions"], rule["from"], rule["decision"]) for rule in rules] == [
        ("Topic:ord*", "Pub,Sub", "", "Allow"),
        ("Topic:orders", "Pub", "10.0.0.0/8", "Deny"),
    ]
    assert user("revoke app Topic:ord* --yes")[0] == 0
    assert (user("check app send orders")[0], sends()) == (1, 16)
    assert user("revoke app --yes")[0] == 0
    assert user("list app")[1] == []
    assert user("check rocketmq send orders")[0] == 0
    assert user("delete app --dry-run")[0] == 0
    assert len(user("list")[1]) == 2
    assert user("delete app --yes")[0] == 0
    assert user("check app send orders")[1][0]["why"] == "User:app is not found."


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("add app", "the password is empty"),
        ("grant app orders Pub", "'orders' is no resource: write Topic:NAME"),
        ("grant app Topic:orders Fly", "'Fly' is no action: use one of All, Pub, Sub, "),
        ("grant app Topic:orders Pub --from here", "'here' is no address and no block"),
        ("check app send orders --from here", "'here' is no IP address"),
        ("check app fly orders", "'fly' is no action"),
    ],
)
def test_wrong_use(user: Run, line: str, says: str) -> None:
    code, rows, errors = user(line)
    assert (code, rows) == (2, [])
    assert says in errors


def test_a_refused_topic_is_reported_once(tmp_path: Path) -> None:
    with secured(tmp_path / "store") as broker, SignedSocket(broker.address) as root:
        create_user(root, "app", "word1234")
        grant(root, "app", f"Cluster:{CLUSTER}", "Get")
        grant(root, "app", "Topic:*", "Get")
        secret = tmp_path / "secret"
        secret.write_text("word1234\n")
        assert broker.name_server is not None
        context = {"XDG_CONFIG_HOME": str(tmp_path)}
        names = "{}:{}".format(*broker.name_server)
        arguments = "--namesrv", names, "--access-key", "app", "--secret-file", str(secret)
        process("context", "add", "app", *arguments, **context).succeeded()
        ran = process("topic", "create", "refused", **context)
        assert (ran.code, ran.out, ran.err.count("has no permission")) == (1, "", 1), ran.err
