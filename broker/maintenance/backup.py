"""Backup: a store copied, also from below a running broker, into a folder that is a good store itself.

Order is what makes it consistent. First what says how far work has come (config, timer, checkpoint, journal), then the
log's end is read: whatever the first speaks of lies below it. Then the log up to there, then queues and index, which
know everything below it by then; what they know beyond is cut when the copy is opened, as after a kill.
Full log files are linked, never those that are still written. The new backup grows beside and takes the target's name
at the end: until then the one before is whole.
"""

import os
import shutil
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from firearrow._native.audit.store_files import AuditedStore
from firearrow._native.offline.segment_files import SegmentFile
from firearrow._native.store.files.errors import StoreUnreadable
from firearrow._native.store.message_store import MessageStore
from firearrow.broker.maintenance.backup_copy import (
    copy_file,
    copy_progress,
    copy_tree,
    link_file,
    sync_path,
    sync_tree,
)
from firearrow.broker.maintenance.backup_manifest import NAME, Manifest, stamp_of
from firearrow.broker.maintenance.lock import held
from firearrow.broker.maintenance.process_pool import Advance, progress_bar
from firearrow.broker.maintenance.store_layout import StoreLayout
from firearrow.broker.maintenance.verify import VerifyOptions, VerifyResult, verify

UNFINISHED, BEFORE = ".unfinished", ".before"
LOCK = "lock"
"""Each broker makes it: a copy that has one is in use, or was."""
LISTED_MAX = ("source", "live", "made", "log_start", "log_end", "linked", "kept", "copied")
"""Of the manifest, for programs."""


@dataclass(frozen=True, slots=True)
class BackupOptions:
    """`beside`: a backup made before, whose full log files are shared. `links`: share those of the source, too."""

    beside: Path | None = None
    links: bool = True
    verify: bool = False
    jobs: int = 0
    quiet: bool = True


def backup(
    source: str, target: Path, options: BackupOptions | None = None
) -> tuple[Manifest, VerifyResult | None]:
    """What was copied, and what was found in the copy if that was asked for: a copy with findings stays beside.

    StoreUnreadable: source or target are not what they must be. OSError: the target is as before.
    """
    options = options or BackupOptions()
    source, target = os.path.abspath(source), target.absolute()
    with held(source, live=True) as alone:
        live = not alone and AuditedStore("", source).is_running()
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
        _take_place(fresh, target)
    return made, verified


class BackupRun:
    """One backup in the making, in a folder of its own. `run` once."""

    def __init__(self, source: str, fresh: Path, previous: Path | None, *, live: bool, links: bool) -> None:
        self._store = AuditedStore(os.path.basename(source), source)
        self._source, self._fresh, self._previous = Path(source), fresh, previous
        self._links = links
        before = Manifest.of(previous) if previous is not None else None
        self._kept = before.sealed if before is not None else {}
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
        for name in ("consumequeue", "index"):
            made.copied += copy_tree(self._source / name, self._fresh / name)
        if made.live:
            self._settle()
        return made

    def _log(self, segments: list[SegmentFile], end: int, advance: Advance) -> None:
        """Full files first, and those by links: a running broker may take them away any time."""
        folder = self._fresh / "commitlog"
        folder.mkdir()
        sealed = [each for each in segments[:-1] if each.end <= end]
        left = [each for each in sealed if not self._is_linked(each, folder, advance)]
        for segment in left:
            if self._copied(segment, folder, None, advance):
                stamp = stamp_of(segment.path)
                if stamp is not None:
                    self._made.sealed[os.path.basename(segment.path)] = stamp
            else:
                self._gone(segment)
        for segment in segments[len(sealed) :]:
            if not self._made.live:
                self._copied(segment, folder, None, advance)
            elif segment.base < end and not self._copied(segment, folder, end - segment.base, advance):
                raise StoreUnreadable(f"{segment.path} went away while it was copied: try again")

    def _copied(self, segment: SegmentFile, folder: Path, end: int | None, advance: Advance) -> bool:
        copied = copy_file(segment.path, str(folder / os.path.basename(segment.path)), advance, end=end)
        self._made.copied += copied or 0
        return copied is not None

    def _is_linked(self, segment: SegmentFile, folder: Path, advance: Advance) -> bool:
        """From the source, or else from the backup before, if it was copied from this very file."""
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

    def _gone(self, segment: SegmentFile) -> None:
        """Retention took it: then what was before it in the log has to be left out, too."""
        folder = self._fresh / "commitlog"
        for name in os.listdir(folder):
            if int(name) < segment.end:
                (folder / name).unlink()
                self._made.sealed.pop(name, None)
        self._made.log_start = max(self._made.log_start, segment.end)

    def _settle(self) -> None:
        """Open the copy as a broker would after a kill, so that its files agree; its `abort` and journal stay."""
        MessageStore.open(self._fresh, StoreLayout.of(str(self._source)).config()).abandon()
        (self._fresh / LOCK).unlink()


def _previous(source: Path, target: Path, options: BackupOptions) -> Path | None:
    """The backup whose files are shared. StoreUnreadable: a folder is not what it must be."""
    if target == source or source in target.parents or target in source.parents:
        raise StoreUnreadable(f"{target} and {source} may not lie in each other: name another target")
    old = target.with_name(target.name + BEFORE)
    if old.is_dir() and not target.exists():
        old.rename(target)  # a run that was ended between its last two steps
    if target.exists() and (not target.is_dir() or (any(target.iterdir()) and Manifest.of(target) is None)):
        raise StoreUnreadable(f"{target} is not empty and no backup: name a new folder")
    if (target / LOCK).exists():
        raise StoreUnreadable(f"{target} was used by a broker since it was copied: name a new folder")
    if options.beside is None:
        return target if (target / NAME).exists() else None
    beside = options.beside.absolute()
    if Manifest.of(beside) is None:
        raise StoreUnreadable(f"{beside} is no backup, it has no {NAME}: name one with --beside")
    return beside


def _clear(fresh: Path) -> None:
    """What an ended run left; only a folder that one made."""
    if not fresh.exists():
        return
    if fresh.is_symlink() or not fresh.is_dir() or (any(fresh.iterdir()) and not (fresh / NAME).exists()):
        raise StoreUnreadable(f"{fresh} is in the way, and no unfinished backup: move it away")
    shutil.rmtree(fresh)


def _take_place(fresh: Path, target: Path) -> None:
    """The new backup under the target's name. At every moment one of both is whole under some name."""
    old = target.with_name(target.name + BEFORE)
    if target.exists():
        if old.exists():
            shutil.rmtree(old)
        target.rename(old)
    fresh.rename(target)
    sync_path(str(target.parent))
    if old.exists():
        shutil.rmtree(old)
