"""Copies a store, also of a running broker, into a folder that is a consistent store itself.

The order makes it consistent. First the progress files are copied (config, timer, checkpoint, journal); then
the end of the log is read, which is after everything that they refer to. Then the log is copied up to that
end, then queues and index, which by then have everything before it; what they have beyond is truncated when
the copy is opened, as after a kill. Full log files are linked, never those that are still written. The new
backup is made next to the target and renamed to it at the end: until then the previous backup is intact.
"""

import contextlib
import os
import shutil
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from firearrow._native.base import last_backup
from firearrow._native.base.last_backup import LastBackup
from firearrow._native.base.progress_bar import Advance, progress_bar
from firearrow._native.offline.segment_files import SegmentFile
from firearrow._native.offline.store_folder import StoreFolder
from firearrow._native.store.files.errors import StoreUnreadable
from firearrow._native.store.message_store import MessageStore
from firearrow.broker.maintenance.backup_copy import (
    QUEUES,
    copy_file,
    copy_progress,
    copy_tree,
    link_file,
    sync_path,
    sync_tree,
)
from firearrow.broker.maintenance.backup_manifest import NAME, Manifest, stamp_of
from firearrow.broker.maintenance.lock import held
from firearrow.broker.maintenance.store_layout import StoreLayout
from firearrow.broker.maintenance.verify import VerifyOptions, VerifyResult, verify

UNFINISHED, PREVIOUS = ".unfinished", ".before"
LOCK = "lock"
"""Each broker creates it: a copy that has one is in use, or was."""
REPORTED_FIELDS = ("source", "live", "made", "log_start", "log_end", "linked", "kept", "copied")
"""Fields of the manifest in the JSON output."""


@dataclass(frozen=True, slots=True)
class BackupOptions:
    """`beside`: a previous backup whose full log files are shared.

    `links`: also share those of the source.
    """

    beside: Path | None = None
    links: bool = True
    verify: bool = False
    jobs: int = 0
    quiet: bool = True


def backup(
    source: str, target: Path, options: BackupOptions | None = None
) -> tuple[Manifest, VerifyResult | None]:
    """Make a backup; return its manifest and, with `verify`, the findings of the copy.

    A copy with findings does not replace the target. Raises StoreUnreadable if source or target are
    unsuitable, and OSError; the target is then unchanged.
    """
    options = options or BackupOptions()
    source, target = os.path.abspath(source), target.absolute()
    with held(source, live=True) as locked:
        live = not locked and StoreFolder("", source).is_running()
        previous = _previous(Path(source), target, options)
        fresh = target.with_name(target.name + UNFINISHED)
        _clear(fresh)
        try:
            made = BackupRun(source, fresh, previous, live=live, links=options.links).run(options.quiet)
            checks = VerifyOptions(jobs=options.jobs, quiet=options.quiet)
            verified = verify(str(fresh), checks) if options.verify else None
            made.write(fresh)
            sync_tree(str(fresh))
        except BaseException:
            _clear(fresh)
            raise
    if verified is None or verified.clean:
        _replace_target(fresh, target)
        _leave_trace(source, target, made)
    return made, verified


class BackupRun:
    """Makes one backup in the folder `fresh`. Call `run` once."""

    def __init__(self, source: str, fresh: Path, previous: Path | None, *, live: bool, links: bool) -> None:
        self._store = StoreFolder(os.path.basename(source), source)
        self._source, self._fresh, self._previous = Path(source), fresh, previous
        self._links = links
        manifest = Manifest.of(previous) if previous is not None else None
        self._kept = manifest.sealed if manifest is not None else {}
        self._made = Manifest(source, live, f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}")

    def run(self, quiet: bool) -> Manifest:
        made = self._made
        self._fresh.mkdir(parents=True)
        (self._fresh / NAME).touch()
        made.copied += copy_progress(self._source, self._fresh, live=made.live)
        end = self._store.log_end()
        segments = self._store.segments()
        made.log_start = segments[0].base if segments else 0
        made.log_end = end
        with progress_bar("log", sum(each.length for each in segments), quiet=quiet) as advance:
            self._log(segments, end, advance)
        for name in QUEUES:
            made.copied += copy_tree(self._source / name, self._fresh / name)
        if made.live:
            self._recover()
        return made

    def _log(self, segments: list[SegmentFile], end: int, advance: Advance) -> None:
        """Copy full files first, by links if possible: retention may delete them at any time."""
        folder = self._fresh / "commitlog"
        folder.mkdir()
        sealed = [each for each in segments[:-1] if each.end <= end]
        unlinked = [each for each in sealed if not self._is_linked(each, folder, advance)]
        for segment in unlinked:
            if self._copied(segment, folder, None, advance):
                stamp = stamp_of(segment.path)
                if stamp is not None:
                    self._made.sealed[os.path.basename(segment.path)] = stamp
            else:
                self._drop_before(segment)
        for segment in segments[len(sealed) :]:
            if not self._made.live:
                self._copied(segment, folder, None, advance)
            elif segment.base < end and not self._copied(segment, folder, end - segment.base, advance):
                raise StoreUnreadable(f"{segment.path} was deleted while it was copied: try again")

    def _copied(self, segment: SegmentFile, folder: Path, end: int | None, advance: Advance) -> bool:
        copied = copy_file(segment.path, str(folder / os.path.basename(segment.path)), advance, end=end)
        self._made.copied += copied or 0
        return copied is not None

    def _is_linked(self, segment: SegmentFile, folder: Path, advance: Advance) -> bool:
        """Link a file to the source or, if the previous backup has a copy of this very file, to that."""
        name = os.path.basename(segment.path)
        stamp = stamp_of(segment.path)
        if stamp is None:
            return False
        if self._links and link_file(segment.path, str(folder / name)):
            self._made.linked += segment.length
        elif self._previous is not None and self._kept.get(name) == stamp:
            if not link_file(str(self._previous / "commitlog" / name), str(folder / name)):
                return False
            self._made.kept += segment.length
        else:
            return False
        self._made.sealed[name] = stamp
        advance(segment.length)
        return True

    def _drop_before(self, segment: SegmentFile) -> None:
        """Retention deleted the file: leave out the files before it as well."""
        folder = self._fresh / "commitlog"
        for name in os.listdir(folder):
            if int(name) < segment.end:
                (folder / name).unlink()
                self._made.sealed.pop(name, None)
        self._made.log_start = max(self._made.log_start, segment.end)

    def _recover(self) -> None:
        """Open the copy as a broker does after a kill, so that its files agree.

        Its `abort` and journal stay.
        """
        MessageStore.open(self._fresh, StoreLayout.of(str(self._source)).config()).abandon()
        (self._fresh / LOCK).unlink()


def _previous(source: Path, target: Path, options: BackupOptions) -> Path | None:
    """The backup whose files can be shared. Raises StoreUnreadable if a folder is unsuitable."""
    if target == source or source in target.parents or target in source.parents:
        raise StoreUnreadable(f"{target} and {source} must not contain each other: give another target")
    old = target.with_name(target.name + PREVIOUS)
    if old.is_dir() and not target.exists():
        old.rename(target)  # an earlier backup was killed between its last two steps
    if target.exists() and (not target.is_dir() or (any(target.iterdir()) and Manifest.of(target) is None)):
        raise StoreUnreadable(f"{target} is not empty and not a backup: give a new folder")
    if (target / LOCK).exists():
        raise StoreUnreadable(f"{target} was used by a broker since it was copied: give a new folder")
    if options.beside is None:
        return target if (target / NAME).exists() else None
    beside = options.beside.absolute()
    if Manifest.of(beside) is None:
        raise StoreUnreadable(
            f"{beside} is not a backup, because it has no {NAME}: give a backup with --beside"
        )
    return beside


def _leave_trace(source: str, target: Path, made: Manifest) -> None:
    """For those who ask when the last backup was made. A source that cannot be written gets none."""
    made_ms = int(datetime.fromisoformat(made.made).timestamp() * 1000)
    with contextlib.suppress(OSError):
        last_backup.write(source, LastBackup(made_ms, str(target), made.log_end))


def _clear(fresh: Path) -> None:
    """Delete what an unfinished backup left; never another folder."""
    if not fresh.exists():
        return
    if fresh.is_symlink() or not fresh.is_dir() or (any(fresh.iterdir()) and not (fresh / NAME).exists()):
        raise StoreUnreadable(f"{fresh} is in the way and not an unfinished backup: move it away")
    shutil.rmtree(fresh)


def _replace_target(fresh: Path, target: Path) -> None:
    """Rename the new backup to the target.

    At every moment the old or the new one is intact under some name.
    """
    old = target.with_name(target.name + PREVIOUS)
    if target.exists():
        if old.exists():
            shutil.rmtree(old)
        target.rename(old)
    fresh.rename(target)
    sync_path(str(target.parent))
    if old.exists():
        shutil.rmtree(old)
