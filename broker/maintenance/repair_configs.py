"""Config files mended: a damaged one gives way to its good `.bak`, offsets beyond the end go back; all is kept."""

from collections.abc import Mapping
from pathlib import Path

from firearrow.broker.base import fastjson
from firearrow.broker.maintenance.quarantine import Quarantine
from firearrow.broker.maintenance.verify import FILES, config_fault, read_object
from firearrow.broker.tables.config_file import ConfigFile


def repair_config(path: Path, quarantine: Quarantine, *, drop: bool, dry: bool = False) -> str | None:
    """What is done, in words; None: neither the file nor its `.bak` is good, and `drop` is not given. OSError."""
    main = path.with_name(path.name.removesuffix(".bak"))
    backup = Path(f"{main}.bak")
    main_wrong, backup_wrong = config_fault(main), config_fault(backup)
    bad = [each for each, wrong in ((main, main_wrong), (backup, backup_wrong)) if wrong]
    good = [each for each, wrong in ((main, main_wrong), (backup, backup_wrong)) if wrong == ""]
    if not bad or (not good and not drop):
        return None if bad else f"{main.name} is good"
    if not dry:
        for each in bad:
            quarantine.move(each)
        if main in bad and good:
            ConfigFile(main).write(backup.read_bytes())
    if not good:
        return f"{main} is taken away: the broker begins without what it held"
    return f"{main} is made from its .bak" if main in bad else f"{backup} is taken away"


def reset_offsets(root: Path, ends: Mapping[tuple[str, int], int], quarantine: Quarantine) -> None:
    """No group is beyond the end of a queue that is there. StoreUnreadable, OSError."""
    for name in FILES:
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
    """Queue ids bare, as Apache writes them."""
    plain = {
        key: {int(queue): at for queue, at in queues.items()} if isinstance(queues, dict) else queues
        for key, queues in table.items()
    }
    return fastjson.pretty({**whole, "offsetTable": plain})
