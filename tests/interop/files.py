"""The config files of a store: members that a newer version could have written into them, what was saved, files that we
never change.
"""

import hashlib
import time
from dataclasses import dataclass
from pathlib import Path

from firearrow._native.protocol.fastjson import dumps, loads
from firearrow._native.wire.codes import RequestCode
from tests.interop.contents import OWN_GROUPS
from tests.interop.pending_work import ok
from tests.support.client_socket import ClientSocket

OFFSETS = "lmqConsumerOffset.json"
ENTRIES: dict[str, tuple[str, ...]] = {
    "topics.json": ("topicConfigTable", "GoldenPlain"),
    "subscriptionGroup.json": ("subscriptionGroupTable", "SELF_TEST_C_GROUP"),
    "timermetrics": ("timingCount", "GoldenTimer"),
    "messageRequestMode.json": ("messageRequestModeMap", "GoldenPop", "CG_POP"),
    OFFSETS: (), "delayOffset.json": (), "consumerOrderInfo.json": (),
}  # fmt: skip
"""Config files, and which entry gets a member that a newer version could have written."""
NAME, VALUE = "addedLater", {"of": [1, None, "ü"], "7": {"deep": True}}
NOT_OURS = ("compaction", "rocksdbstore", "config/consumerFilter.json", "config/transactionMetrics")


@dataclass(frozen=True)
class Saved:
    """Entries of the files as Apache left them; after a kill only the `.bak` may exist."""

    topics: dict[str, object]
    groups: dict[str, object]
    offsets: dict[str, object]

    @staticmethod
    def of(root: Path) -> "Saved":
        offsets = _table(root, OFFSETS, "offsetTable")
        return Saved(
            _table(root, "topics.json", "topicConfigTable"),
            _table(root, "subscriptionGroup.json", "subscriptionGroupTable"),
            {key: value for key, value in offsets.items() if not key.endswith(OWN_GROUPS)},
        )


def _table(root: Path, name: str, member: str) -> dict[str, object]:
    file = root / "config" / name
    found = loads((file if file.exists() else file.with_name(f"{name}.bak")).read_bytes())[member]
    assert isinstance(found, dict)
    return found


def add_members(root: Path) -> int:
    """Write a member into each config file, its data version and an entry of it; how many were written."""
    count = 0
    for name, entry in ENTRIES.items():
        if not (file := root / "config" / name).exists():
            continue
        document = loads(file.read_bytes())
        for each in _objects(document, entry):
            each[NAME] = VALUE
            count += 1
        file.write_bytes(dumps(document))
    return count


def members_kept(root: Path) -> int:
    files = [(root / "config" / name, entry) for name, entry in ENTRIES.items()]
    documents = [(loads(file.read_bytes()), entry) for file, entry in files if file.exists()]
    return sum(each.get(NAME) == VALUE for document, entry in documents for each in _objects(document, entry))


def _objects(document: dict[str, object], entry: tuple[str, ...]) -> list[dict[str, object]]:
    """The document's object, that of its version, and the entry's, if they exist."""
    found: list[object] = [document, document.get("dataVersion")]
    at: object = document if entry else None
    for step in entry:
        at = at.get(step) if isinstance(at, dict) else None
    return [one for one in [*found, at] if isinstance(one, dict)]


def not_ours(root: Path) -> dict[Path, bytes]:
    """Digests of the files for which we have no table."""
    return {
        path: hashlib.sha256(path.read_bytes()).digest()
        for name in NOT_OURS
        for path in [root / name, *(root / name).rglob("*")]
        if path.is_file()
    }


def await_saved(client: ClientSocket, root: Path) -> None:
    """Wait until the files contain everything. Apache cannot read what is only in our journal, and repeats it. The
    second of two savings begins after the first has written all of its files."""
    ext = {"consumerGroup": "SELF_TEST_C_GROUP", "topic": "GoldenPlain", "queueId": "0"}
    for offset in ("1", "2"):
        ok(client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, ext | {"commitOffset": offset}))
        deadline = time.monotonic() + 20
        while _table(root, OFFSETS, "offsetTable").get("GoldenPlain@SELF_TEST_C_GROUP") != {"0": int(offset)}:
            assert time.monotonic() < deadline, "the offsets are not saved"
            time.sleep(0.02)
