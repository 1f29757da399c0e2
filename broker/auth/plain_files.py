"""PlainFiles: `plain_acl.yml` and the files in `conf/acl`: reads, joins, watches and rewrites them. Loop thread.

Files in the folder come first, in the order of their names, and the default file last. An account counts in the first
file that has it; global white addresses of all files count (Apache's PlainPermissionManager).
"""

import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from firearrow._native.base.durable_files import replace_durably
from firearrow.broker.auth import plain_yaml
from firearrow.broker.auth.plain_accounts import Account, PlainAcl
from firearrow.broker.auth.plain_yaml import BYTES_MAX
from firearrow.broker.auth.remote_addresses import RemoteAddresses
from firearrow.broker.base.errors import StartError
from firearrow.broker.base.file_reads import read_regular

log = logging.getLogger("firearrow.auth")

FILES_MAX = 256
"""Files that are read, with the default file."""
SUFFIXES = (".yml", ".yaml")
TOOLS = "tools.yml"
"""A client's keys, no accounts."""
Document = dict[str, object]
Stamp = tuple[int, int, int]


class AclFile(NamedTuple):
    """One file as it was read. `stamp` None: it could not be read."""

    stamp: Stamp | None
    document: Document
    acl: PlainAcl


NOTHING: Document = {}


class Reading(NamedTuple):
    """`files`, read when `before` was in use."""

    before: dict[Path, AclFile]
    files: dict[Path, AclFile]


class PlainFiles:
    def __init__(self, default: Path, folder: Path | None) -> None:
        self.default = default
        self._folder = folder
        self._files: dict[Path, AclFile] = {}
        self.acl = PlainAcl((), {})
        """All files together."""

    def __iter__(self) -> Iterator[tuple[Path, AclFile]]:
        """In the order in which they count."""
        return iter(self._files.items())

    def load(self) -> None:
        """StartError: a file cannot be used."""
        paths = self._found()
        for path in paths or [self.default]:
            try:
                self._files[path] = _read(path)
            except (OSError, ValueError) as error:
                raise StartError(
                    f"{path} cannot be used ({_reason(error)}): fix it, or name another file in "
                    "rocketmq.acl.plain.file"
                ) from None
        self._join()

    def reload(self) -> bool:
        """As `read_changed`, then `take`."""
        return self.take(self.read_changed())

    def read_changed(self) -> Reading:
        """Read files that have changed; a faulty one counts as it was, and is logged. Any thread."""
        before, paths = self._files, self._found()
        files: dict[Path, AclFile] = {}
        for path in paths:
            known = before.get(path)
            stamp = _stamp(path)
            if known is not None and known.stamp == stamp:
                files[path] = known
                continue
            try:
                files[path] = _read(path)
            except (OSError, ValueError) as error:
                log.error("%s was not loaded, its accounts stay as they are: %s", path, _reason(error))
                files[path] = AclFile(stamp, *(known[1:] if known else (NOTHING, PlainAcl((), {}))))
        if self.default in before and self.default not in files:
            # it counts until another one is in its place
            known = before[self.default]
            if known.stamp is not None:
                log.error("%s was deleted, its accounts stay as they are", self.default)
            files[self.default] = known._replace(stamp=None)
        return Reading(before, files)

    def take(self, reading: Reading) -> bool:
        """Use what was read, unless a request has changed a file meanwhile: then it is read again later. Returns
        whether an account or address is another one."""
        before, files = reading
        if self._files is not before:
            return False
        changed = {path: file.acl for path, file in files.items()} != {
            path: file.acl for path, file in before.items()
        }
        self._files = files
        if changed:
            self._join()
        return changed

    def path_of(self, access_key: str) -> Path | None:
        """The file in which the account counts."""
        return next((path for path, file in self if access_key in file.acl.accounts), None)

    def rewrite(self, path: Path, change: Callable[[Document], None]) -> None:
        """Change a file and write it durably, counting its version up. The file on disk is read again first.
        ValueError: the result would not be valid, and nothing was written. OSError."""
        document = dict(_read(path).document) if path.exists() else {}
        change(document)
        acl = PlainAcl.parse(text := plain_yaml.dump(document))
        data = text.encode()
        if len(data) > BYTES_MAX:
            raise ValueError(f"{path.name} would have {len(data)} bytes, at most {BYTES_MAX} are allowed")
        target = Path(os.path.realpath(path))
        mode = target.stat().st_mode & 0o777 if target.exists() else 0o600
        replace_durably(str(target), data, mode=mode)
        self._files = {**self._files, path: AclFile(_stamp(path), document, acl)}
        self._join()

    def _found(self) -> list[Path]:
        """Those that exist. More than FILES_MAX are not read."""
        found: list[Path] = []
        if self._folder is not None:
            for folder, folders, names in os.walk(self._folder):
                folders.sort()
                found += [
                    Path(folder, name) for name in sorted(names) if name.endswith(SUFFIXES) and name != TOOLS
                ]
                if len(found) >= FILES_MAX:
                    log.error("%s has more than %d files, the rest is not read", self._folder, FILES_MAX - 1)
                    del found[FILES_MAX - 1 :]
                    break
        if self.default not in found and self.default.exists():
            found.append(self.default)
        return found

    def _join(self) -> None:
        white: list[RemoteAddresses] = []
        accounts: dict[str, Account] = {}
        for path, file in self:
            white += file.acl.white
            for key, account in file.acl.accounts.items():
                if key in accounts:
                    log.warning("%s has the accessKey %s of another file, which counts", path, key)
                accounts.setdefault(key, account)
        self.acl = PlainAcl(tuple(white), accounts)


def _reason(error: OSError | ValueError) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def _stamp(path: Path) -> Stamp | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _read(path: Path) -> AclFile:
    stamp = _stamp(path)
    data = read_regular(path, BYTES_MAX)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8") from None
    document = plain_yaml.parse(text)
    acl = PlainAcl.of_document(document)
    assert isinstance(document, dict)
    return AclFile(stamp, document, acl)
