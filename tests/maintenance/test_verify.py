"""`verify`: clean stores have no findings, each damage is reported with file and offset, and nothing is written."""

import os
import random
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from firearrow._native.offline.index_file import slots_of
from firearrow._native.store.files.errors import StoreLocked, StoreUnreadable
from firearrow._native.store_checks.findings import Kind, as_row
from firearrow._native.wire.codes import RequestCode
from firearrow.broker.maintenance import process_pool
from firearrow.broker.maintenance.lock import held
from firearrow.broker.maintenance.verify import VerifyOptions, verify
from firearrow.broker.replication.log.epoch_file import EpochFile
from tests.golden import unpacked
from tests.maintenance.damaged import (
    LOG_0,
    MESSAGES,
    files_of,
    index_file,
    made,
    overwrite,
)
from tests.maintenance.damages import DAMAGES, Damage, bad_body
from tests.maintenance.tool import run
from tests.support.broker_process import BrokerProcess
from tests.support.examples import seeds
from tests.support.killing import killing
from tests.support.requests import send_ext
from tests.support.stores import open_store, properties_of, put


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


def test_a_clean_store_of_ours_has_no_findings_and_is_not_changed(root: Path) -> None:
    made(root)
    before = files_of(root)
    verified = verify(str(root))
    assert verified.clean, verified.findings
    assert verified.seen.numbers["records"] == MESSAGES
    assert verified.seen.numbers["index entries"] == 3 * MESSAGES
    assert files_of(root) == before


@pytest.mark.parametrize("name", ["store-apache", "store-apache-crashed"])
def test_apaches_stores_are_clean_and_the_killed_one_is_reported_as_killed(name: str, tmp_path: Path) -> None:
    apache = unpacked(name, tmp_path)
    before = files_of(apache)
    verified = verify(str(apache))
    assert verified.clean, verified.findings
    assert any("not stopped cleanly" in note for note in verified.seen.state) == name.endswith("crashed")
    assert files_of(apache) == before


@pytest.mark.parametrize(("damage", "kinds"), DAMAGES, ids=lambda each: getattr(each, "__name__", ""))
def test_each_damage_is_reported_with_its_file(damage: Damage, kinds: set[Kind], root: Path) -> None:
    path = damage(root, made(root))
    before = files_of(root)
    verified = verify(str(root))
    found = {each.kind for each in verified.findings}
    assert found & kinds, verified.findings
    assert found <= kinds | {
        Kind.NO_KEY,
        Kind.WRONG_KEY,
        Kind.INDEX_CHAIN,
        Kind.INDEX_ORDER,
        Kind.CUT_FILE,
        Kind.HOLE,
        Kind.TORN,
        Kind.OFFSET_BEYOND,
    }, verified.findings
    assert str(path) in {each.where.file for each in verified.findings}, verified.findings
    assert files_of(root) == before


def test_a_torn_tail_is_reported(root: Path) -> None:
    last = made(root)[-1]
    path = sorted((root / "commitlog").iterdir())[-1]
    overwrite(path, last - int(path.name) + 4, bytes(8))
    found = {(each.kind, each.where.file, each.where.position) for each in verify(str(root)).findings}
    assert (Kind.TORN_TAIL, str(path), last - int(path.name)) in found


def test_processes_find_what_one_does(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bad_body(root, made(root))
    alone = verify(str(root), VerifyOptions(jobs=1))
    monkeypatch.setattr(process_pool, "SERIAL_BYTES", 0)
    monkeypatch.setattr(process_pool, "TASK_BYTES", 4096)
    parted = verify(str(root), VerifyOptions(jobs=2))
    assert [as_row(each) for each in parted.findings] == [as_row(each) for each in alone.findings]
    assert parted.seen.numbers == alone.seen.numbers


@pytest.mark.parametrize("seed", seeds(12))
def test_slots_are_derived_from_an_index_file(seed: int, root: Path) -> None:
    """A file does not state its number of slots; any other number would produce findings in a good index."""
    rng = random.Random(seed)
    slots = rng.choice((100, 101, 500, 1000))
    with open_store(root, index_slots=slots, index_entries=4 * slots, segment_bytes=1 << 20) as store:
        for number in range(rng.randrange(30, 2 * slots)):
            own = properties_of(UNIQ_KEY=f"{rng.getrandbits(128):032X}", TAGS="red")
            put(store, b"x", properties=own, now_ms=1_700_000_000_000 + number)
        store.write()
    data = index_file(root).read_bytes()
    assert slots_of(data) == slots
    assert verify(str(root)).clean


# ---- the command ----


def test_the_json_output_is_complete(root: Path) -> None:
    positions = made(root)
    assert run("verify", root).code == 0
    bad_body(root, positions)
    ran = run("verify", root, "--json")
    assert ran.code == 1, ran
    [finding] = ran.report["findings"]
    assert (finding["kind"], finding["position"], finding["physical_offset"]) == (
        "bad CRC",
        positions[3],
        positions[3],
    )
    assert finding["means"]
    assert finding["repair"]
    text = run("verify", root)
    assert text.code == 1
    assert f"bad CRC: {root / LOG_0} at {positions[3]}" in text.out


def test_a_folder_name_that_is_not_utf_8_is_reported(root: Path) -> None:
    made(root)
    odd = root / "consumequeue" / os.fsdecode(b"Orde\x9bs") / "1"
    odd.mkdir(parents=True)
    entry = (1 << 40).to_bytes(8, "big") + (100).to_bytes(4, "big") + bytes(8)
    (odd / f"{0:020d}").write_bytes(entry.ljust(200, b"\0"))
    [finding] = run("verify", root, "--json").report["findings"]
    assert finding["kind"] == "queue entry without record"
    assert "Orde\ufffds" in finding["file"]
    assert "Orde·s" in run("verify", root).out
    assert run("stat", root, "--json").code == 0
    assert run("stat", root).code == 0


def test_wrong_folders_give_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    for folder, says in (("nowhere", "is not a folder"), ("other", "is not a store")):
        ran = run("verify", tmp_path / folder)
        assert (ran.code, ran.out) == (3, ""), ran
        assert says in ran.err
        assert ran.err.count("\n") == 1, ran.err
    assert run("verify").code == 2
    assert run("verify", tmp_path, "--jobs", "-1").code == 2
    assert run("mend", tmp_path).code == 2


def test_a_store_in_use_is_refused_without_live(root: Path) -> None:
    with BrokerProcess(root) as broker:
        ran = run("verify", broker.store)
        assert ran.code == 3
        assert "is in use by a broker" in ran.err
        assert run("verify", broker.store, "--live").code == 0
        broker.stop()
    assert run("verify", root).code == 0


def test_the_lock_keeps_brokers_away(root: Path) -> None:
    made(root)
    executor = "import sys; from firearrow.broker.maintenance.lock import held\n"
    executor += f"with held({str(root)!r}): print('held', flush=True); sys.stdin.read()"
    with killing(
        subprocess.Popen([sys.executable, "-c", executor], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(StoreLocked, match="is in use by a broker"), held(str(root)):
            pass
        with held(str(root), live=True) as alone:
            assert not alone
        other.communicate(b"", timeout=20)
    with held(str(root)) as alone:
        assert alone


def test_a_folder_without_a_log_is_not_a_store(tmp_path: Path) -> None:
    with pytest.raises(StoreUnreadable, match="has no commitlog folder"):
        verify(str(tmp_path))


def test_a_broker_does_not_import_the_tools() -> None:
    """The start does not pay for tools."""
    modules = (
        "[name for name in sys.modules if 'broker.maintenance' in name or '_native.store_checks' in name]"
    )
    program = f"import sys, firearrow.broker.app.app, firearrow.broker.cli; print({modules})"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


def test_damaged_epochs_are_reported(root: Path) -> None:
    made(root)
    EpochFile(root).append(1, 0)
    assert verify(str(root)).clean
    path = root / "epochFileCheckpoint"
    path.write_bytes(path.read_bytes().replace(b"1-0", b"1-9"))
    [finding] = verify(str(root)).findings
    assert (finding.kind, finding.where.file) == (Kind.CONFIG, str(path))


def test_delayed_messages_of_other_levels_than_apaches(tmp_path: Path) -> None:
    """Without the configuration any time of delivery counts, but one before the message was stored."""
    root = tmp_path / "store"
    with BrokerProcess(root, "--set", "messageDelayLevel=4s 3h") as broker:
        with broker.connect() as connection:
            for level in (1, 2):
                answer = connection.ask(
                    RequestCode.SEND_MESSAGE_V2, send_ext("T", i=f"DELAY\x01{level}\x02"), b"x"
                )
                assert answer.code == 0
        assert broker.stop() == 0
    levels = {level: VerifyOptions(jobs=1, delays_s=level) for level in ((), (4, 10_800), (4, 60))}
    assert [verify(str(root), options).clean for options in levels.values()] == [True, True, False]
    overwrite(
        root / "consumequeue/SCHEDULE_TOPIC_XXXX/1" / f"{0:020d}", 12, (1_700_000_000_000).to_bytes(8, "big")
    )
    assert [each.kind for each in verify(str(root), levels[()]).findings] == [Kind.WRONG_TAGS]


def test_what_was_never_written_of_a_large_log_is_not_read(tmp_path: Path) -> None:
    """The files of a log are 1 GiB each: reading the hole at the end would take a page fault for each page."""
    root = tmp_path / "store"
    with open_store(root, segment_bytes=1 << 30) as store:
        put(store, b"only one")
        store.write()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    assert verify(str(root), VerifyOptions(jobs=1)).clean
    taken = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
    assert taken < 2_000, taken
