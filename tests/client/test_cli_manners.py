"""What all commands have in common: tables and JSON, questions, exit codes, contexts, completion, help."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import orjson
import pytest

from firearrow._native.base.verbs import Verb
from firearrow.client import blocking
from firearrow.client.base import times
from firearrow.client.base.errors import ConfigError
from firearrow.client.cli.main import BUILT_IN, own_entries
from tests.client.conftest import unique
from tests.interop.peers import Peer
from tests.meta.cli import verbs
from tests.support.broker_process import BrokerProcess
from tests.support.command_line import PROGRAM, here, on_terminal, process
from tests.support.eventually import eventually
from tests.support.fork_server import ForkedCommand


@pytest.fixture(autouse=True)
def no_contexts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)


@pytest.fixture
def topic(peer: Peer) -> str:
    name = unique("manners")
    assert here("topic", "create", name, "--queues", "2", name_server=peer.name_server).code == 0
    return name


# ---- tables and JSON ----


def test_a_terminal_gets_a_table(peer: Peer, topic: str) -> None:
    code, shown = on_terminal("topic", "show", topic, "-n", peer.name_server)
    assert code == 0
    lines = [line.split() for line in shown.splitlines()]
    assert ["BROKER", "QUEUE", "FIRST", "NEXT", "MESSAGES", "LAST", "MESSAGE"] in lines
    assert [peer_name(peer), "1", "0", "0", "0", "-"] in lines


def peer_name(peer: Peer) -> str:
    return str(here("status", name_server=peer.name_server).lines[0]["broker"])


def test_a_pipe_gets_json_lines(peer: Peer, topic: str) -> None:
    piped = process("topic", "list", "-n", peer.name_server)
    assert {"topic": topic} in piped.rows


def test_json_is_to_be_had_on_a_terminal(peer: Peer, topic: str) -> None:
    code, shown = on_terminal("topic", "list", "--json", "-n", peer.name_server)
    assert code == 0
    assert {"topic": topic} in [orjson.loads(line) for line in shown.splitlines()]


@pytest.mark.parametrize("line", ["config get -n {}", "store --help", "spark --help", "--help"])
def test_a_reader_may_leave(peer: Peer, topic: str, line: str) -> None:
    """Like `firearrow … | head -1`."""
    words = ["firearrow", *line.format(peer.name_server).split()]
    running = ForkedCommand(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert running.stdout is not None
    running.stdout.close()
    _, err = running.communicate(timeout=30)
    assert (running.returncode, err) == (0, b"")


INTERRUPTIBLE = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
"""A shell lets commands in the background, and these tests among them, ignore SIGINT."""


def test_ctrl_c_ends_a_watch(peer: Peer, topic: str) -> None:
    running = subprocess.Popen(
        [*PROGRAM[:2], INTERRUPTIBLE + PROGRAM[2], "top", "--every", "0.1", "-n", peer.name_server],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert running.stdout is not None
    assert running.stdout.readline()
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=30)
    assert (running.returncode, err) == (130, b"")


INTERRUPTED_IMPORT = """
import sys
from firearrow.client.cli.main import main
from tests.support.fork_server import ForkedCommand

class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.endswith("cli.messages.tail"):
            raise KeyboardInterrupt

sys.meta_path.insert(0, Finder)
main()
"""


def test_ctrl_c_while_a_command_is_imported_shows_no_traceback() -> None:
    words = [sys.executable, "-c", INTERRUPTED_IMPORT, "tail", "orders"]
    ended = subprocess.run(words, capture_output=True, check=False)
    assert (ended.returncode, ended.stderr) == (130, b"")


def test_output_that_cannot_be_written_is_one_sentence(peer: Peer, topic: str) -> None:
    with open("/dev/full", "wb") as full:
        words = ["firearrow", "topic", "list", "-n", peer.name_server]
        ended = ForkedCommand(words, stdout=full, stderr=subprocess.PIPE, text=True)
        _, error = ended.communicate(timeout=30)
    sentence = "firearrow topic list: cannot use the output: No space left on device\n"
    assert (ended.returncode, error) == (1, sentence)


def test_ctrl_c_ends_a_bench_without_complaints(peer: Peer) -> None:
    """Its consumer commits nothing of a topic that is deleted already."""
    running = subprocess.Popen(
        [*PROGRAM[:2], INTERRUPTIBLE + PROGRAM[2], "bench", "roundtrip", "--seconds", "60"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"NAMESRV_ADDR": peer.name_server},
    )
    with blocking.Admin(peer.name_server) as admin:

        def runs() -> bool:
            found = [name for name in admin.topics() if name.startswith("firearrow-bench-")]
            return any(s.max_offset > 100 for name in found for s in admin.topic_stats(name).values())

        eventually(runs)
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=30)
    assert (running.returncode, err) == (130, b"")


def test_a_watch_redraws_a_terminal(peer: Peer, topic: str) -> None:
    group = unique("watched")
    with blocking.Admin(peer.name_server) as admin:
        admin.create_group(group)
    queue = ["group", "seek", group, topic, "--queue", "0", "--offset", "0", "--yes"]
    assert here(*queue, name_server=peer.name_server).code == 0
    code, shown = on_terminal("group", "lag", group, "--watch", "0.1", "--max", "-1", "-n", peer.name_server)
    assert code == 1
    assert shown.startswith("\x1b[H\x1b[J")


# ---- questions ----


@pytest.mark.parametrize(("typed", "gone"), [("y\n", True), ("yes\n", True), ("n\n", False), ("\n", False)])
def test_a_terminal_is_asked(peer: Peer, topic: str, typed: str, gone: bool) -> None:
    code, shown = on_terminal("topic", "delete", topic, "-n", peer.name_server, typed=typed)
    assert code == 0
    assert f"delete topic {topic} with its 0 messages? [y/N]" in shown
    assert (here("topic", "show", topic, name_server=peer.name_server).code == 1) is gone


def test_without_a_terminal_nothing_is_asked_or_done(peer: Peer, topic: str) -> None:
    refused = process("topic", "delete", topic, "-n", peer.name_server, stdin="y\n")
    assert (refused.code, refused.out) == (2, "")
    assert "--yes" in refused.err
    assert here("topic", "show", topic, name_server=peer.name_server).code == 0


def test_a_dry_run_does_nothing_even_with_yes(peer: Peer, topic: str) -> None:
    planned = process("topic", "delete", topic, "--dry-run", "--yes", "-n", peer.name_server)
    assert planned.code == 0
    assert planned.err == f"would delete topic {topic} with its 0 messages\n"
    assert here("topic", "show", topic, name_server=peer.name_server).code == 0


# ---- exit codes ----


@pytest.mark.parametrize(
    "words",
    [
        "topic nothing",
        "topic show",
        "topic create t --queues 0",
        "topic create t --queues many",
        "topic create t --attribute novalue",
        "topic create a/b",
        "topic trim t",
        "topic trim t --before yesterday",
        "topic trim t --before -1h --offset 3",
        "topic list --timeout 0",
        "topic list --timeout nan",
        "topic list --context missing",
        "group seek g t",
        "group seek g t --to somewhen",
        "group seek g --offset 3",
        "group lag g --watch 0",
        "bench send --count 0",
        "bench send --in-flight 100000",
        "bench send --size 99999999",
        "config set",
        "top --every -1",
        "context use missing",
        "context add bad --namesrv localhost",
        "completion tcsh",
    ],
)
def test_wrong_use(peer: Peer, words: str) -> None:
    """Exit code 2 and one line that says what is wrong."""
    given = words.split()
    ran = here(*given, name_server=None if given[0] == "context" else peer.name_server)
    assert (ran.code, ran.out) == (2, ""), ran
    assert len(ran.err.splitlines()) == 1
    assert ran.err.startswith("firearrow ")


def test_no_name_server_is_not_the_one_of_another_cluster(peer: Peer, topic: str) -> None:
    """Such as `--namesrv "$UNSET" --yes` of a script."""
    here("context", "add", "here", "--namesrv", peer.name_server).succeeded()
    for words in (
        ["topic", "delete", topic, "--yes", "--namesrv", ""],
        ["topic", "copy", topic, "other", "--target", ";"],
    ):
        ran = here(*words)
        assert (ran.code, "name servers are empty" in ran.err) == (2, True), ran


def test_nobody_there() -> None:
    ran = here("topic", "list", "-n", "127.0.0.1:1")
    assert (ran.code, ran.out) == (3, "")
    assert "127.0.0.1:1" in ran.err


def test_trouble(peer: Peer) -> None:
    ran = here("topic", "show", "nothing-of-this-name", name_server=peer.name_server)
    assert (ran.code, ran.out) == (1, "")


def test_a_dead_broker_is_trouble_in_the_status(peer: Peer, tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "store") as broker:
        assert broker.name_server is not None
        name_server = "{}:{}".format(*broker.name_server)
        assert here("status", name_server=name_server).code == 0
        broker.process.send_signal(19)
        ran = here("status", "--timeout", "0.3", name_server=name_server)
        broker.process.send_signal(18)
    assert ran.code == 3, ran


# ---- speed ----


def test_a_verb_imports_little(peer: Peer) -> None:
    """No broker, no producers, nothing for the web; the time itself is measured by `bench.footprint`."""
    code = (
        "import sys; from firearrow.client.cli.main import run; run(['topic', 'list']); "
        "print(*sys.modules, sep='\\n', file=sys.stderr)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"NAMESRV_ADDR": peer.name_server},
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = set(ran.stderr.split())
    assert "firearrow.client.cli.topics.topic" in loaded
    slow = {
        "http",
        "email",
        "urllib.request",
        "rich",
        "uvloop",
        "importlib.metadata",
        "tempfile",
    }
    assert not loaded & slow
    packages = {
        "firearrow.broker",
        "firearrow.client.send",
        "firearrow.client.consume",
        "firearrow.client.pull",
    }
    assert not packages & loaded


# ---- contexts ----


def test_contexts(peer: Peer, topic: str, tmp_path: Path) -> None:
    assert here("context", "list").rows == []
    here("context", "add", "here", "--namesrv", peer.name_server).succeeded()
    here("context", "add", "nowhere", "--namesrv", "127.0.0.1:1").succeeded()
    assert {"topic": topic} in here("topic", "list").rows  # the first one is in use
    assert here("topic", "list", "--context", "nowhere").code == 3
    here("context", "use", "nowhere").succeeded()
    assert [(row["name"], row["current"]) for row in here("context", "list").rows] == [
        ("here", False),
        ("nowhere", True),
    ]
    assert here("topic", "list").code == 3
    assert {"topic": topic} in here("topic", "list", name_server=peer.name_server).rows  # NAMESRV_ADDR wins
    assert here("context", "remove", "nowhere").code == 2
    here("context", "remove", "nowhere", "--yes").succeeded()
    assert [row["name"] for row in here("context", "list").rows] == ["here"]


def test_a_context_keeps_its_keys_to_itself(tmp_path: Path) -> None:
    words = ("context", "add", "signed", "-n", "127.0.0.1:1", "--access-key", "reader", "--secret-file")
    added = process(*words, "-", stdin="hidden\n")
    added.succeeded()
    file = tmp_path / "firearrow" / "contexts.json"
    assert file.stat().st_mode & 0o077 == 0
    assert b"hidden" in file.read_bytes()
    listed = process("context", "list")
    assert listed.rows[0]["accessKey"] == "reader"
    assert "hidden" not in added.out + added.err + listed.out
    assert here("context", "add", "signed", "--access-key", "reader").code == 2
    assert here(*words, str(tmp_path / "nothing")).code == 2


def test_a_broken_file_of_contexts_is_named(tmp_path: Path) -> None:
    file = tmp_path / "firearrow" / "contexts.json"
    file.parent.mkdir()
    for text in ("", "[]", '{"current": 1}', '{"current": "", "contexts": {"a": {"nonsense": 1}}}'):
        file.write_text(text)
        ran = here("topic", "list")
        assert (ran.code, str(file) in ran.err) == (2, True)


# ---- completion ----


def complete(*words: str) -> list[str]:
    ran = here("completion", "words", *words)
    assert (ran.code, ran.err) == (0, "")
    return ran.out.split()


def test_words_are_completed(peer: Peer, topic: str) -> None:
    server = ("-n", peer.name_server)
    assert {*own_entries(), *BUILT_IN} == set(complete(""))
    assert complete("to") == ["top", "topic"]
    assert complete("topic", "s") == ["set", "show", "shrink"]
    assert topic in complete("topic", "show", *server, "")
    assert topic in complete("topic", "show", *server, topic[:-1])
    assert complete("topic", "show", *server, topic) == [topic]
    assert complete("group", "lag", *server, "g", topic) == [topic]
    assert complete("topic", "create", "t", "--perm", "") == ["none", "r", "rw", "w"]
    assert complete("topic", "create", "t", "--pe") == ["--perm"]
    assert complete("config", "get", *server, "--broker", "") == [peer_name(peer)]
    assert complete("topic", "nothing", "") == []
    assert complete("topic", "show", "one", "two", "") == []
    assert complete("nothing", "") == []
    assert complete("broker", "") == []


def test_completion_is_silent_when_nobody_is_there() -> None:
    assert complete("topic", "show", "-n", "127.0.0.1:1", "") == []
    assert complete("topic", "show", "--context", "missing", "") == []


def test_bash_completes(peer: Peer, topic: str, tmp_path: Path) -> None:
    """The script in a real bash, with `firearrow` on its path."""
    program = tmp_path / "bin" / "firearrow"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}\nfrom firearrow.client.cli.main import main\nmain()\n")
    program.chmod(0o755)
    here("context", "add", "here", "--namesrv", peer.name_server).succeeded()
    script = """
    source <(firearrow completion bash)
    COMP_WORDS=(firearrow topic show "$1") COMP_CWORD=3
    _firearrow
    printf '%s\\n' "${COMPREPLY[@]}"
    complete -p firearrow
    """
    ran = subprocess.run(
        ["bash", "-c", script, "bash", topic],
        env=os.environ | {"PATH": f"{program.parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.splitlines()[0] == topic
    assert "_firearrow" in ran.stdout.splitlines()[-1]


# ---- help ----


@pytest.mark.parametrize("verb", verbs(), ids=lambda verb: verb.prog)
def test_each_verb_explains_itself_with_two_examples(verb: Verb) -> None:
    ran = here(*verb.prog.split()[1:], "--help")
    assert ran.code == 0
    _, found, examples = ran.out.partition("\nexamples:\n")
    assert found, ran.out
    prog = verb.prog.replace("replica promote", "promote")  # one verb with two names
    assert [line.startswith(f"  {prog}") for line in examples.splitlines()] == [True, True], ran.out


# ---- times ----


def test_times() -> None:
    now = times.now_ms()
    assert abs(times.time_ms("-15m") - (now - 900_000)) < 5000
    assert abs(times.time_ms("+1h30m") - (now + 5_400_000)) < 5000
    assert times.time_ms("1700000000") == times.time_ms("1700000000000") == 1_700_000_000_000
    assert times.time_ms("2023-11-14T22:13:20Z") == 1_700_000_000_000
    assert times.time_ms(times.time_text(1_700_000_000_123)) == 1_700_000_000_123
    for wrong in ("", "-", "-x", "1h-", "2023-13-01", "９", "9" * 40, "-1e9h"):
        with pytest.raises(ConfigError):
            times.time_ms(wrong)
