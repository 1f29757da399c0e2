"""The package of `make deb`, installed in a new Debian, run and removed: `python -m tests.packaging.deb`.

The broker runs with the command of the systemd unit, as the package's user. Needs root, mmdebstrap and the package in
dist/.
"""

import shlex
import shutil
import subprocess
from pathlib import Path

from tests.packaging.image import newest
from tests.packaging.root_folder import (
    broker,
    exchange,
    exchange_by_grpc,
    in_own_network,
    is_outside,
    run,
    stop,
)

ROOT = Path(__file__).resolve().parents[2]
WORK = ROOT / "build" / "deb-test"
SUITES = {"deb12": "bookworm", "deb13": "trixie"}
STORE, CONFIG = "var/lib/firearrow/store", "etc/firearrow/broker.conf"
OURS = (
    "usr/bin/firearrow",
    "usr/lib/firearrow",
    "lib/systemd/system/firearrow.service",
    "usr/share/bash-completion/completions/firearrow",
    "usr/share/zsh/vendor-completions/_firearrow",
    "usr/share/fish/vendor_completions.d/firearrow.fish",
    "usr/share/man/man1/firearrow.1.gz",
    "usr/share/doc/firearrow/docs",
)
INSTALLED_KIB_MAX = 21504


def main() -> None:
    package, root = newest(ROOT / "dist", "firearrow_*.deb"), WORK / "root"
    console = newest(ROOT / "dist", "firearrow-console_*.deb")
    if is_outside():  # where Debian's archive can be reached
        more = [each.strip() for each in run("dpkg-deb", "--field", console, "Depends").split(",")[1:]]
        make_debian(
            package, root, "openssl", "python3-protobuf", "python3-yaml", *more
        )  # which it recommends
    in_own_network("tests.packaging.deb")
    install(package, root)
    print(run("chroot", root, "firearrow", "--version").strip())
    size = sum(int(run("du", "-sk", root / path).split()[0]) for path in OURS)
    assert size <= INSTALLED_KIB_MAX, size
    run("chroot", root, "firearrow", "tls", "init", "--dir", "/tmp/tls")
    assert (root / "tmp/tls/authority.pem").exists()
    user, group = (int(run("chroot", root, "id", option, "firearrow")) for option in ("--user", "--group"))
    with broker(root, root / "var/lib/firearrow", f"{user}:{group}", unit_command(root)) as running:
        exchange("Package")
        exchange_by_grpc("Package5")
        stop(running)
    store = (root / STORE).stat()
    assert (store.st_uid, store.st_gid) == (user, group)
    check_console(console, root)
    check_upgrade(package, root)
    check_removal(root)


def make_debian(package: Path, root: Path, *more: str) -> None:
    """A minimal system with what the package depends on, and `more` packages."""
    shutil.rmtree(root, ignore_errors=True)
    root.parent.mkdir(parents=True, exist_ok=True)
    depends = run("dpkg-deb", "--field", package, "Depends")
    include = ",".join([*(each.split()[0] for each in depends.split(",")), "usr-is-merged", *more])
    suite = SUITES[package.name.split("_")[1].partition("+")[2]]
    merged = "--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr"
    run("mmdebstrap", "--quiet", "--variant=essential", merged, f"--include={include}", suite, root)


def install(package: Path, root: Path) -> None:
    shutil.copy(package, root / "firearrow.deb")
    run("chroot", root, "dpkg", "--install", "/firearrow.deb")
    state = run("chroot", root, "dpkg-query", "--show", "--showformat=${db:Status-Status}", "firearrow")
    assert state == "installed", state
    assert all((root / path).exists() for path in OURS)


def unit_command(root: Path) -> list[str]:
    """ExecStart of the unit, without the arguments of /etc/default/firearrow."""
    lines = (root / "lib/systemd/system/firearrow.service").read_text().splitlines()
    [command] = [line.partition("=")[2] for line in lines if line.startswith("ExecStart=")]
    return [word for word in shlex.split(command) if word != "$FIREARROW_ARGS"]


def check_console(package: Path, root: Path) -> None:
    """A package of its own, with Debian's libraries; its pages are made."""
    lacking = subprocess.run(
        ["chroot", root, "firearrow", "console"], capture_output=True, text=True, check=False
    )
    assert lacking.returncode == 3
    assert "install the package firearrow-console" in lacking.stderr, lacking
    shutil.copy(package, root / "console.deb")
    run("chroot", root, "dpkg", "--install", "/console.deb")
    command = [
        "chroot",
        root,
        "firearrow",
        "console",
        "--listen",
        "127.0.0.1:28088",
        "--namesrv",
        "127.0.0.1:1",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        url = running.stdout.readline().split()[-1]
        page = run("curl", "--silent", f"{url}/topics")
        assert "The brokers cannot be reached" in page, page
        running.terminate()
    print("the console answers")
    run("chroot", root, "dpkg", "--remove", "firearrow-console")


def check_upgrade(package: Path, root: Path) -> None:
    """What the administrator has changed stays."""
    with (root / CONFIG).open("a") as file:
        file.write("fileReservedTime=48\n")
    install(package, root)
    assert (root / CONFIG).read_text().endswith("fileReservedTime=48\n")
    print("installed again: the changed broker.conf is kept")


def check_removal(root: Path) -> None:
    run("chroot", root, "dpkg", "--remove", "firearrow")
    assert not any((root / path).exists() for path in OURS)
    assert (root / CONFIG).exists()
    print("removed: broker.conf and the store are kept")
    text = run("chroot", root, "dpkg", "--purge", "firearrow")
    assert not (root / "etc/firearrow").exists()
    assert not (root / "etc/default/firearrow").exists()
    assert (root / STORE / "commitlog").is_dir()
    assert "the store in /var/lib/firearrow is kept" in text
    print("purged: the store is kept")


if __name__ == "__main__":
    main()
