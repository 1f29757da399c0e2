"""SmallDisk: a real file system of a few MiB for a store: ext4 in a file, or memory. Needs root; skips with its reason.

It can be filled, emptied, remounted read-only as the kernel does on an error, and shut down under its users.
"""

import errno
import fcntl
import os
import shutil
import subprocess
from pathlib import Path
from typing import Self

import pytest

SHUTDOWN = 0x8004587D
"""EXT4_IOC_SHUTDOWN; its flag 2: without writing the journal first."""
SHUTDOWN_NO_LOG_FLUSH = b"\2\0\0\0"
BALLAST_PIECE = 1 << 16


class SmallDisk:
    """Mounted at `path` from `with` to its end. `kind`: `ext4` or `tmpfs`. `inodes`: how many it has; 0: by its
    size."""

    def __init__(self, folder: Path, mib: int = 16, kind: str = "ext4", inodes: int = 0) -> None:
        if os.geteuid() != 0:
            pytest.skip("needs root to mount a small file system")
        if shutil.which("mount") is None or (kind == "ext4" and shutil.which("mkfs.ext4") is None):
            pytest.skip(f"needs mount and mkfs for a small {kind}")
        self.path = folder / "disk"
        self.store = folder / "store"
        """Another path of a folder on the disk: what a broker logs beside it is not on the disk."""
        self._image = folder / "disk.img"
        self._kind, self._mib, self._inodes = kind, mib, inodes

    def __enter__(self) -> Self:
        self.path.mkdir()
        if self._kind == "tmpfs":
            self._mount("-t", "tmpfs", "-o", f"size={self._mib}m", "none")
        else:
            inodes = ("-N", str(self._inodes)) if self._inodes else ()
            with self._image.open("wb") as image:
                image.truncate(self._mib << 20)
            subprocess.run(
                ["mkfs.ext4", "-q", "-m", "0", "-O", "^resize_inode", *inodes, self._image], check=True
            )
            self._mount("-o", "loop,errors=remount-ro", str(self._image))
        (self.path / "store").mkdir()
        self.store.symlink_to(self.path / "store")
        return self

    def __exit__(self, *_: object) -> None:
        subprocess.run(["umount", "-l", self.path], check=True)
        self._image.unlink(missing_ok=True)

    def fill(self, leave_bytes: int = 0) -> None:
        """Take all space except `leave_bytes`."""
        free = os.statvfs(self.path).f_bavail * os.statvfs(self.path).f_frsize - leave_bytes
        with (self.path / "ballast").open("ab", buffering=0) as ballast:
            try:
                while free > 0:
                    free -= ballast.write(bytes(min(free, BALLAST_PIECE)))
                if leave_bytes == 0:
                    os.fsync(ballast.fileno())
                    while True:
                        ballast.write(bytes(4096))
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise

    def free_space(self) -> None:
        """Remove the ballast."""
        (self.path / "ballast").unlink(missing_ok=True)
        subprocess.run(["sync", "-f", self.path], check=True)

    def turn_read_only(self) -> None:
        """As after an error that the kernel found: files that are open for writing do not prevent it (ext4)."""
        device = Path(os.path.realpath(self._device())).name
        trigger = Path(f"/sys/fs/ext4/{device}/trigger_fs_error")
        if not trigger.exists():
            pytest.skip("needs /sys/fs/ext4 to raise an error in the file system")
        trigger.write_text("a test\n")

    def shut_down(self) -> None:
        """Every access that needs the device fails from now on with EIO (ext4)."""
        folder = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(folder, SHUTDOWN, SHUTDOWN_NO_LOG_FLUSH)
        finally:
            os.close(folder)

    def lose(self, data: bytes) -> int:
        """Zeros where the disk has `data`, though the page cache of its files still has it; how many there were."""
        count = 0
        with self._image.open("r+b") as image:
            whole = image.read()
            at = whole.find(data)
            while at >= 0:
                image.seek(at)
                image.write(bytes(len(data)))
                count += 1
                at = whole.find(data, at + 1)
            image.flush()
            os.fsync(image.fileno())
        return count

    def mount_again(self) -> None:
        """What a machine that starts again finds on the disk."""
        subprocess.run(["umount", "-l", self.path], check=True)
        self._mount("-o", "loop,errors=remount-ro", str(self._image))

    def _device(self) -> str:
        for line in Path("/proc/mounts").read_text().splitlines():
            device, mount_point, *_ = line.split()
            if mount_point == str(self.path):
                return device
        raise FileNotFoundError(f"{self.path} is not mounted")

    def _mount(self, *words: str) -> None:
        done = subprocess.run(["mount", *words, self.path], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            pytest.skip(f"cannot mount a small file system here: {done.stderr.strip()}")
