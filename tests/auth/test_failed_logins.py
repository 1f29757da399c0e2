"""Guessing passwords is slow, whatever the number of connections; failures are logged once; the audit log."""

import json
import logging
import resource
import signal
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from firearrow._native.wire.codes import RequestCode
from firearrow.broker.auth.audit_log import LINES_PER_S_MAX, TEXT_CHARS_MAX, AuditLog
from firearrow.broker.auth.failed_logins import (
    ADDRESSES_MAX,
    DELAY_MAX_S,
    FREE,
    LOG_PERIOD_S,
    LOGINS_MAX,
    WAITING_MAX,
    FailedLogins,
)
from firearrow.broker.base.errors import StartError
from tests.auth.secured import SignedSocket, create_user, grant, secured
from tests.support.client_socket import ClientSocket

HEARTBEAT = b'{"clientID":"c","producerDataSet":[{"groupName":"p"}],"consumerDataSet":[]}'


class Times:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_delays_grow_and_are_forgotten() -> None:
    times = Times()
    failed = FailedLogins(times)
    delays = [failed.failed("1.1.1.1", "wrong", "u", 0) for _ in range(FREE + 10)]
    assert delays[:FREE] == [0] * FREE
    assert delays[FREE:] == sorted(delays[FREE:])
    assert delays[FREE] == pytest.approx(0.1)
    assert delays[-1] == DELAY_MAX_S
    assert failed.failed("2.2.2.2", "wrong", "u", 0) == 0
    times.now += 301
    assert failed.failed("1.1.1.1", "wrong", "u", 0) == 0


def test_nobody_of_an_address_tries_while_too_many_wait() -> None:
    times = Times()
    failed = FailedLogins(times)
    for _ in range(FREE + WAITING_MAX - 1):
        failed.failed("1.1.1.1", "wrong", "u", 0)
    assert failed.wait_s("1.1.1.1", "u", 1) == 0
    failed.failed("1.1.1.1", "wrong", "u", 0)
    assert 0 < failed.wait_s("1.1.1.1", "u", 1) <= DELAY_MAX_S
    assert failed.wait_s("2.2.2.2", "u", 1) == 0
    times.now += DELAY_MAX_S + 1
    assert failed.wait_s("1.1.1.1", "u", 1) == 0


def test_who_has_logged_in_from_the_address_may_try_on_each_connection_once() -> None:
    times = Times()
    failed = FailedLogins(times)
    failed.succeeded("1.1.1.1", "ann")
    for _ in range(FREE + WAITING_MAX):
        failed.failed("1.1.1.1", "wrong", "bob", 0)
    assert failed.wait_s("1.1.1.1", "ann", 1) == 0
    assert failed.wait_s("1.1.1.1", "bob", 1) > 0
    failed.failed("1.1.1.1", "wrong", "ann", 0)
    assert failed.wait_s("1.1.1.1", "ann", 0) > 0
    assert failed.wait_s("1.1.1.1", "ann", 1) == 0
    for n in range(2 * WAITING_MAX):
        failed.failed("1.1.1.1", "wrong", "ann", n)
    assert failed.wait_s("1.1.1.1", "ann", 1) > 0
    assert failed.wait_s("1.1.1.1", "ann", "fresh") == 0
    times.now += DELAY_MAX_S
    assert failed.wait_s("1.1.1.1", "ann", 1) == 0
    for _ in range(FREE + WAITING_MAX):
        failed.failed("1.1.1.1", "wrong", "bob", 0)
    for n in range(LOGINS_MAX + 1):
        failed.succeeded("1.1.1.1", f"user {n}")
    assert failed.wait_s("1.1.1.1", "user 0", 1) > 0
    assert failed.wait_s("1.1.1.1", "user 1", 1) == 0


def test_more_ipv6_addresses_of_a_network_do_not_help(caplog: pytest.LogCaptureFixture) -> None:
    times = Times()
    failed = FailedLogins(times)
    delays = [failed.failed(f"2001:db8::{n:x}:1", "wrong", "u", 0) for n in range(FREE + WAITING_MAX)]
    assert delays[FREE] > 0
    assert failed.wait_s("2001:db8:0:0:ffff::1", "u", 1) > 0
    assert failed.wait_s("2001:db8:0:1::1", "u", 1) == failed.wait_s("::1", "u", 1) == 0
    assert failed.failed("2001:db8:0:1::1", "wrong", "u", 0) == 0
    times.now += LOG_PERIOD_S
    failed.note("2001:db8::9", "wrong")
    assert [record.getMessage() for record in caplog.records] == [
        "refused 2001:db8::0:1: wrong (user 'u')",
        "refused 2001:db8:0:1::1: wrong (user 'u')",
        f"refused 2001:db8::/64: wrong ({FREE + WAITING_MAX} times more)",
    ]
    for n in range(FREE + WAITING_MAX):
        failed.failed(f"fe80::{n:x}", "wrong", "u", 0)
    assert failed.wait_s("fe80::1", "u", 1) == 0, "neighbours on a link share its network"


def test_addresses_are_bounded_and_the_one_that_failed_first_is_forgotten() -> None:
    failed = FailedLogins(Times())
    for _ in range(FREE):
        failed.failed("first", "wrong", "u", 0)
    for n in range(ADDRESSES_MAX - 1):
        failed.failed(str(n), "wrong", "u", 0)
    assert failed.failed("first", "wrong", "u", 0) > 0  # and is now the last one
    for n in range(ADDRESSES_MAX):
        failed.failed(f"more {n}", "wrong", "u", 0)
    assert failed.failed("first", "wrong", "u", 0) == 0


def test_failures_are_logged_once_with_their_number(caplog: pytest.LogCaptureFixture) -> None:
    times = Times()
    failed = FailedLogins(times)
    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            failed.failed("1.1.1.1", "wrong", "u", 0)
        times.now += LOG_PERIOD_S
        failed.failed("1.1.1.1", "wrong", "u", 0)
        failed.note("1.1.1.1", "other")
    assert [record.getMessage() for record in caplog.records] == [
        "refused 1.1.1.1: wrong (user 'u')",
        "refused 1.1.1.1: wrong (5 times more)",
        "refused 1.1.1.1: other",
    ]
    assert failed.total == 7


def test_names_of_peers_fill_neither_log_nor_memory(caplog: pytest.LogCaptureFixture) -> None:
    failed = FailedLogins(Times())
    with caplog.at_level(logging.WARNING):
        for n in range(100):
            failed.failed("1.1.1.1", "wrong", f"{n}\n" + "x" * 100_000, 0)
    [record] = caplog.records
    assert record.getMessage().startswith("refused 1.1.1.1: wrong (user '0\\nxxx")
    assert len(record.getMessage()) < 200


def test_a_guesser_is_slowed_down_and_its_neighbour_is_not(tmp_path: Path) -> None:
    with (
        secured(tmp_path / "store") as broker,
        SignedSocket(broker.address) as neighbour,
        SignedSocket(broker.address, password="guess") as guesser,
    ):
        assert neighbour.ask(RequestCode.HEART_BEAT, {}, HEARTBEAT).code == 0
        begin = time.monotonic()
        for _ in range(FREE + 3):
            answer = guesser.ask(RequestCode.HEART_BEAT, {}, HEARTBEAT)
            assert (answer.code, answer.remark) == (16, "check signature failed.")
        assert time.monotonic() - begin > 0.6  # 0.1, 0.2 and 0.4 s
        for _ in range(2 * WAITING_MAX):
            guesser.send_request(RequestCode.HEART_BEAT, {}, HEARTBEAT)
        with SignedSocket(broker.address, "stranger") as late:
            answer = late.ask(RequestCode.HEART_BEAT, {}, HEARTBEAT)
        assert answer.code == 16
        assert answer.remark is not None
        assert answer.remark.startswith("too many failed logins from 127.0.0.1: try again in ")
        begin = time.monotonic()
        assert neighbour.ask(RequestCode.HEART_BEAT, {}, HEARTBEAT).code == 0
        assert time.monotonic() - begin < 0.5
        assert "refused 127.0.0.1: check signature failed." in broker.log.read_text()
        assert broker.log.read_text().count("check signature failed") == 1


def test_a_program_with_an_old_password_locks_no_other_out(tmp_path: Path) -> None:
    with secured(tmp_path / "store") as broker, SignedSocket(broker.address) as root:
        create_user(root, "app", "word1234")
        with SignedSocket(broker.address, "app", "word1234") as app:
            assert app.ask(RequestCode.HEART_BEAT, {}, HEARTBEAT).code == 0
            with SignedSocket(broker.address, "old", "guess") as old:
                for _ in range(FREE + 2 * WAITING_MAX):
                    old.send_request(RequestCode.HEART_BEAT, {}, HEARTBEAT)
                for _ in range(FREE):
                    old.receive()
                grant(root, "app", "Topic:a", "Pub")  # ends all logins
                assert app.ask(RequestCode.HEART_BEAT, {}, HEARTBEAT).code == 0
                with SignedSocket(broker.address, "app", "word1234") as another:
                    assert another.ask(RequestCode.HEART_BEAT, {}, HEARTBEAT).code == 0


def test_guesses_of_a_users_password_do_not_lock_it_out(tmp_path: Path) -> None:
    with secured(tmp_path / "store") as broker, SignedSocket(broker.address) as root:
        assert root.ask(RequestCode.HEART_BEAT, {}, HEARTBEAT).code == 0
        with ExitStack() as stack:
            guessers = [
                stack.enter_context(SignedSocket(broker.address, password="guess"))
                for _ in range(2 * WAITING_MAX)
            ]
            for guesser in guessers * 4:
                guesser.send_request(RequestCode.HEART_BEAT, {}, HEARTBEAT)
            for guesser in guessers:
                guesser.receive()  # each was tried, or refused
            with SignedSocket(broker.address) as again:
                assert again.ask(RequestCode.HEART_BEAT, {}, HEARTBEAT).code == 0
            assert root.ask(RequestCode.HEART_BEAT, {}, HEARTBEAT).code == 0


def test_a_connection_that_has_logged_in_does_not_guess_faster(tmp_path: Path) -> None:
    with secured(tmp_path / "store") as broker, SignedSocket(broker.address) as root:
        assert root.ask(RequestCode.HEART_BEAT, {}, HEARTBEAT).code == 0
        root.password = "guess"
        count = 4 * WAITING_MAX
        for _ in range(count):
            root.send_request(RequestCode.HEART_BEAT, {}, HEARTBEAT)
        remarks = [str(root.receive().remark) for _ in range(count)]
        assert remarks.count("check signature failed.") == FREE + WAITING_MAX


def test_the_audit_log_has_changes_and_refusals(tmp_path: Path) -> None:
    path = tmp_path / "audit" / "auth.jsonl"
    with secured(tmp_path / "store", f"authAuditLog={path}") as broker, SignedSocket(broker.address) as root:
        create_user(root, "app", "hidden-word")
        grant(root, "app", "Topic:a", "Pub")
        root.ask(RequestCode.AUTH_UPDATE_USER, {"username": "app"}, b'{"password":"other-word"}')
        with SignedSocket(broker.address, "app", "other-word") as app:
            assert app.ask(RequestCode.GET_BROKER_CONFIG).code == 16
        root.ask(RequestCode.AUTH_DELETE_ACL, {"subject": "User:app", "resource": "Topic:a"})
        root.ask(RequestCode.AUTH_DELETE_USER, {"username": "app"})
        assert broker.stop() == 0
    text = path.read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    initial, *lines = lines
    assert (initial["event"], initial["user"], initial["target"]["username"]) == (
        "createUser",
        None,
        "rocketmq",
    )
    events = ["createUser", "updateAcl", "updateUser", "refused", "deleteAcl", "deleteUser"]
    assert [line["event"] for line in lines] == events
    assert {line["address"] for line in lines} == {"127.0.0.1"}
    assert [line["user"] for line in lines] == [*["rocketmq"] * 3, "app", *["rocketmq"] * 2]
    assert lines[2]["passwordChanged"] is True
    assert lines[3]["code"] == RequestCode.GET_BROKER_CONFIG
    assert "-word" not in text
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_flood_of_refusals_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    audit = AuditLog.open(str(path), lambda: times[0])
    times = [5000]
    for _ in range(LINES_PER_S_MAX + 3):
        audit.refusal(10, "u" * (TEXT_CHARS_MAX + 1), "1.1.1.1", "no")
    times[0] = 6000
    audit.refusal(10, "u", "1.1.1.1", "no")
    audit.close()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(lines) == LINES_PER_S_MAX + 1
    assert lines[-1]["missing"] == 3
    assert len(lines[0]["user"]) == TEXT_CHARS_MAX


def test_an_audit_log_that_cannot_be_written_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="name another file in authAuditLog"):
        AuditLog.open(str(tmp_path), lambda: 0)


def test_the_audit_log_is_rotated(tmp_path: Path) -> None:
    path, times = tmp_path / "audit.jsonl", [5000]
    audit = AuditLog.open(str(path), lambda: times[0])
    audit.change("first", "u", "1.1.1.1")
    path.rename(tmp_path / "audit.jsonl.1")
    times[0] += 1000
    audit.change("second", "u", "1.1.1.1")
    path.unlink()
    times[0] += 1000
    audit.change("third", "u", "1.1.1.1")
    audit.close()
    assert json.loads((tmp_path / "audit.jsonl.1").read_text())["event"] == "first"
    assert json.loads(path.read_text())["event"] == "third"
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_line_that_was_cut_off_spoils_only_itself(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    path.write_bytes(b'{"ms": 1, "eve')
    audit = AuditLog.open(str(path), lambda: 5000)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (40, limits[1]))  # as a full disk
        for _ in range(2):
            audit.change("lost", "u", "1.1.1.1")
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        audit.change("kept", "u", "1.1.1.1")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)
    audit.close()
    lines = path.read_text().splitlines()
    assert lines[0] == '{"ms": 1, "eve'
    assert lines[-1] == json.dumps(
        {"ms": 5000, "event": "kept", "user": "u", "address": "1.1.1.1", "missing": 2}
    )


def test_the_audit_log_names_only_who_has_signed(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    codes = str(int(RequestCode.AUTH_CREATE_USER))
    with (
        secured(
            tmp_path / "store",
            f"authAuditLog={path}",
            f"authenticationWhitelist={codes}",
            f"authorizationWhitelist={codes}",
        ) as broker,
        ClientSocket(broker.address) as anyone,
    ):
        ext = {"username": "app", "AccessKey": "rocketmq"}
        answer = anyone.ask(RequestCode.AUTH_CREATE_USER, ext, b'{"username":"app","password":"word1234"}')
        assert answer.code == 0, answer.remark
    line = json.loads(path.read_text().splitlines()[-1])
    assert (line["event"], line["user"], line["target"]["username"]) == ("createUser", None, "app")
