"""replay: what is selected arrives, in order, at least once, with its provenance; failures are reported."""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import lz4.frame
import orjson
import pytest

from firearrow.client import blocking
from firearrow.client.base.compression import FLAGS
from firearrow.client.base.message import Message, MessageQueue
from firearrow.client.base.options import CompressionKind
from firearrow.client.local_broker import LocalBroker
from firearrow.spark_tools.base.errors import SendFailed
from firearrow.spark_tools.base.provenance import Provenance
from firearrow.spark_tools.jobs import send_task
from firearrow.spark_tools.jobs.replay import cli
from firearrow.spark_tools.live.cluster import Cluster
from firearrow.spark_tools.live.sender import PendingSend, Sender
from firearrow.spark_tools.offline import index_plan
from tests.spark.replaying import Job, bodies, file_hashes, job, stored
from tests.spark.stores import BROKER, SETTINGS, Golden, Known, KnownStore

LZ4_INDEPENDENT_BLOCKS = 1 << 5
"""A bit of the frame descriptor's first byte, which follows the four bytes of the magic number."""
ONE = '{"T": {"b": {"0": 1}}}'


@pytest.fixture
def replay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    return job(cli, tmp_path, monkeypatch)


@pytest.fixture
def target(tmp_path: Path) -> Iterator[LocalBroker]:
    """A broker without topics, of the same name as the store's."""
    root = tmp_path / "target" / BROKER
    root.parent.mkdir()
    with LocalBroker(root, settings=SETTINGS) as running:
        yield running


def to(target: LocalBroker, *more: str) -> tuple[str, ...]:
    return ("--target", target.name_server, "--create-topics", *more)


def test_everything_arrives_in_its_queues_in_order(
    store: KnownStore, target: LocalBroker, replay: Job
) -> None:
    before = file_hashes(store.root)
    ran = replay("--path", str(store.root), *to(target))
    assert ran.code == 0, ran.err
    assert file_hashes(store.root) == before
    for topic in ("Orders", "Payments", "Readings"):
        assert bodies(target.store, topic) == bodies(store.root, topic)
    assert ran.report["totals"]["messages"] == len(store.messages)
    assert ran.report["topics"]["Orders"]["messages"] == len(store.of("Orders"))


def test_a_message_keeps_what_is_its_own_and_has_its_provenance(
    store: KnownStore, target: LocalBroker, replay: Job
) -> None:
    ran = replay("--path", str(store.root), "--topics", "Orders", *to(target))
    assert ran.code == 0, ran.err
    for (broker, queue_id), records in stored(target.store, "Orders").items():
        known = store.in_queue("Orders", queue_id)
        assert len(records) == len(known)
        for record, message in zip(records, known, strict=True):
            properties = record.properties
            assert (properties.get("TAGS"), record.flag) == (message.tags, message.flag)
            assert tuple(properties.get("KEYS", "").split()) == message.keys
            assert properties["UNIQ_KEY"] == message.unique_id
            assert properties.items() >= message.properties.items()
            assert Provenance.of(properties) == Provenance(
                ran.report["id"], message.queue, message.queue_offset
            )
            assert bool(record.sys_flag & 1) is (message.packed is not None)
        assert broker == BROKER


def test_frames_of_lz4_are_sent_as_they_are_stored(
    broker: LocalBroker, topics: Callable[..., str], replay: Job
) -> None:
    """Java reads no linked blocks. No tool of Spark's compresses bodies itself, so none links them."""
    topic, copied = topics(1), topics(1)
    body = b"".join(b"%d" % number for number in range(20_000))
    frames = [lz4.frame.compress(body, block_linked=linked) for linked in (False, True)]
    assert [bool(frame[4] & LZ4_INDEPENDENT_BLOCKS) for frame in frames] == [True, False]
    with Sender(Cluster.of({"nameServer": broker.name_server})) as sender:
        for frame in frames:
            queue = MessageQueue(topic, BROKER, 0)
            sender.send_one(queue, 0, frame, b"", sys_flag=FLAGS[CompressionKind.LZ4]).wait()
    path = ("--path", str(broker.store), "--topics", topic)
    assert replay(*path, "--target", broker.name_server, "--to-topic", copied).code == 0
    assert bodies(broker.store, copied) == {0: frames}


def test_without_provenance_nothing_is_put(store: KnownStore, target: LocalBroker, replay: Job) -> None:
    replay("--path", str(store.root), "--topics", "Readings", "--no-provenance", *to(target))
    for records in stored(target.store, "Readings").values():
        assert not [name for record in records for name in record.properties if name.startswith("REPLAY_")]


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (("--tags", "paid"), lambda known: known.tags == "paid"),
        (("--keys", "Orders-7,Orders-9"), lambda known: {"Orders-7", "Orders-9"} & set(known.keys)),
        (("--queues", "1-2"), lambda known: known.queue.queue_id in (1, 2)),
        (("--sql", "number BETWEEN 10 AND 20"), lambda known: 10 <= int(known.properties.get("number", -1)) <= 20),
        (("--tags", "paid||shipped", "--queues", "1"), lambda known: (known.tags, known.queue.queue_id) == ("paid", 1)),
    ],
    ids=["tags", "keys", "queues", "sql", "tags-and-queues"],
)  # fmt: skip
def test_only_what_is_chosen_arrives(
    store: KnownStore,
    target: LocalBroker,
    replay: Job,
    arguments: tuple[str, ...],
    wanted: Callable[[Known], bool],
) -> None:
    ran = replay("--path", str(store.root), "--topics", "Orders", *arguments, *to(target))
    assert ran.code == 0, ran.err
    ids = [
        record.properties["UNIQ_KEY"]
        for records in stored(target.store, "Orders").values()
        for record in records
    ]
    assert sorted(ids) == sorted(known.unique_id for known in store.of("Orders") if wanted(known))
    assert 0 < len(ids) < len(store.of("Orders"))


@pytest.mark.parametrize("numbers", [(7, 93), (60,)])
@pytest.mark.parametrize("option", ["--keys", "--unique-ids", "--keys-file"])
def test_a_few_messages_are_found_by_the_index(
    store: KnownStore,
    target: LocalBroker,
    replay: Job,
    tmp_path: Path,
    option: str,
    numbers: tuple[int, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(index_plan, "GAP_MAX", 0)
    known = [message for message in store.of("Orders") if message.keys]
    ids = [known[number].unique_id for number in numbers]
    keys = [known[number].keys[0] for number in numbers]
    sought = {message.unique_id for message in known if set(keys) & set(message.keys)}
    (tmp_path / "keys").write_text("\n".join(keys))
    given = {"--keys": ",".join(keys), "--unique-ids": ",".join(ids), "--keys-file": str(tmp_path / "keys")}
    ran = replay("--path", str(store.root), option, given[option], "--by-index", *to(target))
    assert ran.code == 0, ran.err
    sent = {
        record.properties["UNIQ_KEY"] for found in stored(target.store, "Orders").values() for record in found
    }
    assert sent == (set(ids) if option == "--unique-ids" else sought)
    plan = orjson.loads((tmp_path / "checkpoint" / "plan.json").read_bytes())
    assert sum(end - start for *_, start, end, _ in plan["slices"]) < len(store.messages) / 10


def test_offsets_name_ranges(store: KnownStore, target: LocalBroker, replay: Job) -> None:
    text = f'{{"Orders": {{"{BROKER}": {{"0": [5, 9], "2": [-2, 3]}}}}}}'
    assert replay("--path", str(store.root), "--offsets", text, *to(target)).code == 0
    there, source = bodies(target.store, "Orders"), bodies(store.root, "Orders")
    assert there == {0: source[0][5:9], 2: source[2][:3]}


@pytest.mark.parametrize("bound", ["--from", "--until"])
def test_times_bound_what_is_sent(store: KnownStore, target: LocalBroker, replay: Job, bound: str) -> None:
    records = stored(store.root, "Readings")[BROKER, 0]
    middle = records[len(records) // 2].store_timestamp
    wanted = [record.body for record in records if (record.store_timestamp >= middle) is (bound == "--from")]
    ran = replay("--path", str(store.root), "--topics", "Readings", bound, str(middle), *to(target))
    assert ran.code == 0, ran.err
    assert bodies(target.store, "Readings") == {0: wanted}
    assert 0 < len(wanted) < len(records)


def test_another_topic_with_fewer_queues_takes_the_remainder(
    store: KnownStore, target: LocalBroker, replay: Job
) -> None:
    with blocking.Admin(name_server=target.name_server) as admin:
        admin.create_topic("Narrow", 3)
    ran = replay(
        "--path",
        str(store.root),
        "--topics",
        "Orders",
        "--to-topic",
        "Narrow",
        "--target",
        target.name_server,
    )
    assert ran.code == 0, ran.err
    assert ran.report["notes"] == [f"other queue id: Orders@{BROKER}:3 → Narrow@{BROKER}:0"]
    for records in stored(target.store, "Narrow").values():
        provenances = [Provenance.of(record.properties) for record in records]
        for queue_id in range(4):
            offsets = [each.queue_offset for each in provenances if each and each.queue.queue_id == queue_id]
            assert offsets == sorted(offsets)
    assert sum(map(len, bodies(target.store, "Narrow").values())) == len(store.of("Orders"))


def test_unordered_goes_to_all_queues_and_nothing_is_missing(
    store: KnownStore, target: LocalBroker, replay: Job
) -> None:
    with blocking.Admin(name_server=target.name_server) as admin:
        admin.create_topic("Readings", 4)
    ran = replay(
        "--path",
        str(store.root),
        "--topics",
        "Readings,Payments",
        "--unordered",
        *to(target, "--verify"),
    )
    assert ran.code == 0, ran.err
    for topic in ("Readings", "Payments"):
        there = [body for each in bodies(target.store, topic).values() for body in each]
        source = [body for each in bodies(store.root, topic).values() for body in each]
        assert sorted(there) == sorted(source)
    assert ran.report["verification"]["missing"] == 0


def test_a_live_cluster_is_read_as_its_store_is(
    broker: LocalBroker, target: LocalBroker, topics: Callable[..., str], replay: Job
) -> None:
    topic = topics(2)
    with blocking.Producer("live", name_server=broker.name_server) as producer:
        for number in range(300):
            producer.send(
                Message(topic, f"live {number}".encode()), queue=MessageQueue(topic, BROKER, number % 2)
            )
    ran = replay("--name-server", broker.name_server, "--topics", topic, *to(target, "--verify"))
    assert ran.code == 0, ran.err
    assert bodies(target.store, topic) == {
        queue_id: [f"live {number}".encode() for number in range(queue_id, 300, 2)] for queue_id in (0, 1)
    }
    assert ran.report["verification"] == {
        "by": "source offset",
        "messages": 300,
        "missing": 0,
        "wrong": 0,
        "copies": 0,
        "unreadable": 0,
        "named": [],
    }


def test_a_golden_store_arrives_whole(golden_clean: Golden, target: LocalBroker, replay: Job) -> None:
    source = f"apache={golden_clean.root}"
    ran = replay(
        "--path",
        source,
        "--topics",
        "GoldenPlain,GoldenBatch,GoldenV4,GoldenOrder",
        *to(target, "--verify"),
    )
    assert ran.code == 0, ran.err
    for topic, queue in golden_clean.queues():
        if topic in ("GoldenPlain", "GoldenBatch", "GoldenV4", "GoldenOrder") and queue["messages"]:
            there = stored(target.store, topic)[target.store.name, queue["queueId"]]
            assert [record.body_crc for record in there] == [each["bodyCrc"] for each in queue["messages"]]
            assert [record.properties.get("KEYS") for record in there] == [
                each["properties"].get("KEYS") for each in queue["messages"]
            ]


def test_a_dry_run_counts_and_sends_nothing(store: KnownStore, target: LocalBroker, replay: Job) -> None:
    ran = replay("--path", str(store.root), "--dry-run", *to(target))
    assert ran.code == 0, ran.err
    counted = Counter[tuple[str, str]]()
    for topic, rows in ran.report["counts"].items():
        for row in rows:
            assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:00Z", row["hour"])
            counted[topic, row["tag"]] += row["messages"]
    assert counted == Counter((known.queue.topic, known.tags or "") for known in store.messages)
    with blocking.Admin(name_server=target.name_server) as admin:
        assert not {"Orders", "Payments", "Readings"} & set(admin.topics())
    assert not (replay.folder / "checkpoint" / "dry-run").exists()


# ---- resuming ----


class Failing(Sender):
    """Fails after it has sent this many batches."""

    left = 0

    def send_batch(self, *arguments: object, **named: object) -> PendingSend:
        if Failing.left == 0:
            raise SendFailed("the line was cut")
        Failing.left -= 1
        return super().send_batch(*arguments, **named)  # type: ignore[arg-type]


def test_what_was_cut_goes_on_and_only_what_was_not_acknowledged_comes_twice(
    store: KnownStore, target: LocalBroker, replay: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(send_task, "BATCH_BYTES", 2000)
    arguments = ("--path", str(store.root), *to(target))
    with monkeypatch.context() as patched:
        patched.setattr(send_task, "Sender", Failing)
        Failing.left = 40
        cut = replay(*arguments)
    assert cut.code == 1
    assert cut.report["failures"] == ["the line was cut"]
    assert "run the same command again to resume from" in cut.out
    went_on = replay(*arguments, "--verify")
    assert went_on.code == 0, went_on.err
    assert went_on.report["resumed"]
    assert went_on.report["id"] == cut.report["id"]
    assert went_on.report["totals"]["messages"] == len(store.messages)
    seen = Counter(
        record.properties["UNIQ_KEY"]
        for topic in ("Orders", "Payments", "Readings")
        for records in stored(target.store, topic).values()
        for record in records
    )
    assert set(seen) == {known.unique_id for known in store.messages}
    assert seen.total() - len(seen) <= send_task.WAITING_MAX * 20


def test_what_is_finished_is_not_sent_again(store: KnownStore, target: LocalBroker, replay: Job) -> None:
    arguments = ("--path", str(store.root), "--topics", "Payments", *to(target))
    first = replay(*arguments)
    again = replay(*arguments, "--rate", "5")
    assert again.code == 0
    assert again.report["notes"] == ["everything is done already; use another --checkpoint to do it again"]
    assert again.report["topics"] == first.report["topics"]
    assert sum(map(len, bodies(target.store, "Payments").values())) == len(store.of("Payments"))


def test_a_range_without_messages_is_not_said_to_be_done(
    store: KnownStore, target: LocalBroker, replay: Job
) -> None:
    arguments = ("--path", str(store.root), "--topics", "Payments", "--from", "2999-01-01", *to(target))
    for more in ((), ("--verify",), ()):
        ran = replay(*arguments, *more)
        assert ran.code == 0, ran.err
        assert ran.report["notes"] == ["the source has no messages in what was selected: nothing was sent"]
        assert not ran.report["resumed"]
    assert not (replay.folder / "checkpoint").exists()


def test_other_arguments_with_the_same_checkpoint_are_refused(
    store: KnownStore, target: LocalBroker, replay: Job
) -> None:
    assert replay("--path", str(store.root), "--topics", "Payments", *to(target)).code == 0
    other = replay("--path", str(store.root), "--topics", "Orders", *to(target))
    assert other.code == 1
    assert "was started with other arguments" in other.err


def test_a_broker_that_goes_away_is_an_error_and_then_it_goes_on(
    store: KnownStore, target: LocalBroker, replay: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ("--path", str(store.root), "--topics", "Orders", "--timeout", "0.5", *to(target))
    monkeypatch.setattr(send_task, "BATCH_BYTES", 2000)
    sent: list[int] = []

    class Killing(Sender):
        def send_batch(self, *given: object, **named: object) -> PendingSend:
            sent.append(1)
            if len(sent) == 15:
                target.kill()
            return super().send_batch(*given, **named)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr(send_task, "Sender", Killing)
        failed = replay(*arguments)
    assert failed.code == 1
    assert failed.report["failures"]
    assert 0 < failed.report["totals"]["messages"] < len(store.of("Orders"))
    target.start()
    ran = replay(*arguments, "--timeout", "20", "--verify")
    assert ran.code == 0, ran.err
    assert ran.report["verification"]["messages"] == len(store.of("Orders"))


# ---- what is refused ----


def test_a_topic_that_the_target_has_not_is_named(
    store: KnownStore, target: LocalBroker, replay: Job
) -> None:
    with LocalBroker(settings={"autoCreateTopicEnable": "false"}) as strict:
        ran = replay("--path", str(store.root), "--topics", "Orders", "--target", strict.name_server)
    assert ran.code == 1
    assert "Orders" in ran.err
    assert "--create-topics creates it" in ran.err


def test_a_topic_that_the_source_has_not_is_named(
    store: KnownStore, target: LocalBroker, replay: Job
) -> None:
    ran = replay("--path", str(store.root), "--topics", "Nothing", *to(target))
    assert ran.code == 1
    assert "Nothing" in ran.err
    assert ran.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--target", "127.0.0.1:1"), "--path or --namesrv"),
        (("--dry-run", "--verify", "--path", "s"), "--dry-run sends nothing"),
        (("--path", "s", "--topics", "T", "--offsets", ONE, "--target", "t:1"), "--offsets names the queues"),
        (("--path", "s", "--topics", "T", "--pattern", "T", "--target", "t:1"), "--topic and --pattern"),
        (("--path", "s", "--rate", "0", "--target", "t:1"), "--rate"),
    ],
)  # fmt: skip
def test_wrong_usage_is_one_sentence(
    store: KnownStore, replay: Job, arguments: tuple[str, ...], expected: str
) -> None:
    ran = replay(*(str(store.root) if each == "s" else each for each in arguments))
    assert ran.code == 2
    assert expected in ran.err
    assert ran.err.count("\n") == 1


def test_offsets_beyond_the_end_are_lost_or_counted(
    store: KnownStore, target: LocalBroker, replay: Job
) -> None:
    text = f'{{"Readings": {{"{BROKER}": {{"0": [100, 1000]}}}}}}'
    arguments = ("--path", str(store.root), "--offsets", text, *to(target))
    failed = replay(*arguments)
    assert failed.code == 1
    assert f"Readings@{BROKER}:0[132..1000)" in failed.err
    ran = replay(*arguments, "--no-fail-on-data-loss")
    assert ran.code == 0, ran.err
    assert sum(ran.report["lost"].values()) == 868
    assert (ran.report["totals"]["lost"], ran.report["totals"]["lost_ranges"]) == (868, 1)
    assert "lost: 868 messages in 1 ranges" in ran.out
    assert sum(map(len, bodies(target.store, "Readings").values())) == 32
