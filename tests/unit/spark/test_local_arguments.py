"""Jobs check what they know without a broker first: a target that does not answer is waited for a minute."""

import importlib
import socket
from collections.abc import Iterator

import pytest

from firearrow.spark_tools.base.errors import REFUSALS
from firearrow.spark_tools.jobs.arguments import RunArguments, SourceArguments, TargetArguments
from firearrow.spark_tools.jobs.program import check_endpoints

WRONG: list[tuple[dict[str, object], str]] = [
    ({}, "--path or --namesrv"),
    ({"path": ["/no/such/folder"]}, "is not a folder"),
    ({"since": "nonsense"}, "--from"),
    ({"since": "2026-01-02", "until": "2026-01-01"}, "is not after"),
    ({"queues": "x"}, "--queues"),
    ({"offsets": "{"}, "--offsets"),
    ({"pattern": "("}, "--pattern"),
    ({"keys_file": "/no/such/file"}, "--keys-file"),
    ({"by_index": True}, "--by-index"),
]


class Silent:
    """A port that takes connections and never answers."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._socket.setblocking(False)
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"

    def was_asked(self) -> bool:
        try:
            self._socket.accept()[0].close()
        except BlockingIOError:
            return False
        return True

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def silent() -> Iterator[Silent]:
    port = Silent()
    yield port
    port.close()


def known(given: dict[str, object], silent: Silent) -> dict[str, object]:
    """A wrong argument beside a right source, but for those that are the source."""
    return given if not given or "path" in given else {"name_server": silent.address} | given


@pytest.mark.parametrize(("given", "text"), WRONG)
def test_before_a_submit_asks_any_broker(given: dict[str, object], text: str, silent: Silent) -> None:
    source = SourceArguments(**known(given, silent))  # type: ignore[arg-type]
    with pytest.raises(REFUSALS, match=text):
        check_endpoints([source, TargetArguments(target=silent.address), RunArguments()])
    assert not silent.was_asked()


@pytest.mark.parametrize(
    ("job", "words", "text"),
    [
        ("replay", ("--topics", "T"), "--path or --namesrv"),
        ("replay", ("--name-server", "SILENT", "--topics", "T", "--from", "x"), "--from"),
        ("redrive", ("--name-server", "SILENT", "--group", "G", "--from", "x"), "--from"),
        ("redrive", ("--path", "/no/such/folder", "--group", "G"), "is not a folder"),
        ("copy_", ("--name-server", "SILENT", "--topics", "T", "--offsets", "{"), "--offsets"),
        ("export", ("--name-server", "SILENT", "--to", "OUT", "--from", "x"), "--from"),
        ("export", ("--to", "OUT"), "--path or --namesrv"),
        ("audit.audit", ("--path", "/no/such/folder"), "is not a store"),
    ],
)
def test_before_a_job_asks_any_broker_or_starts_spark(
    job: str,
    words: tuple[str, ...],
    text: str,
    silent: Silent,
    tmp_path: object,
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = [{"SILENT": silent.address, "OUT": f"{tmp_path}/out"}.get(word, word) for word in words]
    if job in ("replay", "redrive", "copy_"):
        given += ["--target", silent.address]
    module = importlib.import_module(f"firearrow.spark_tools.jobs.{job}")
    assert module.cli(given) in (1, 2)
    assert text in capsys.readouterr().err
    assert not silent.was_asked()
