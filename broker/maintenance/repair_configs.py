"""Repairs config files; the originals are kept.

A damaged file is restored from its valid `.bak`; offsets beyond the end of a queue are set to its end.
"""

from collections.abc import Mapping
from pathlib import Path

from firearrow._native.offline.config_tables import OFFSET_FILES, read_object
from firearrow._native.protocol import fastjson
from firearrow._native.store_checks.small_files import State, config_state
from firearrow.broker.maintenance.quarantine import Quarantine
from firearrow.broker.tables.config_file import ConfigFile


def repair_config(path: Path, quarantine: Quarantine, *, drop: bool, dry: bool = False) -> str | None:
    """Repair a file and describe it; None if neither it nor its `.bak` is valid and not `drop`.

    Raises OSError.
    """
    main = path.with_name(path.name.removesuffix(".bak"))
    backup = Path(f"{main}.bak")
    states = {path: config_state(path).state for path in (main, backup)}
    bad = [path for path, state in states.items() if state is State.DAMAGED]
    good = [path for path, state in states.items() if state is State.VALID]
    if not bad or (not good and not drop):
        return None if bad else f"{main.name} is valid"
    if not dry:
        for each in bad:
            quarantine.move(each)
        if main in bad and good:
            ConfigFile(main).write(backup.read_bytes())
    if not good:
        return f"remove {main}: the broker starts without its content"
    return f"restore {main} from its .bak" if main in bad else f"remove {backup}"


def reset_offsets(root: Path, ends: Mapping[tuple[str, int], int], quarantine: Quarantine) -> None:
    """Set offsets beyond the end of an existing queue to its end. Raises StoreUnreadable, OSError."""
    for name in OFFSET_FILES:
        path = root / "config" / name
        whole = dict(read_object(path))
        table = whole.get("offsetTable")
        if not isinstance(table, dict):
            continue
        changed = False
        for key, queues in table.items():
            topic = str(key).partition("@")[0]
            for queue, at in list(queues.items()) if isinstance(queues, dict) else ():
                end = ends.get((topic, int(queue))) if str(queue).isdecimal() else None
                if end is not None and type(at) is int and at > end:
                    queues[queue], changed = end, True
        if changed:
            if path.exists():
                quarantine.copy(path)
            ConfigFile(path).write(_text(whole, table))


def _text(whole: dict[object, object], table: dict[object, object]) -> bytes:
    """JSON with bare queue ids, as Apache writes them."""
    plain = {
        key: {int(queue): at for queue, at in queues.items()} if isinstance(queues, dict) else queues
        for key, queues in table.items()
    }
    return fastjson.pretty({**whole, "offsetTable": plain})
