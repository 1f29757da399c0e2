"""The image of `make image`, unpacked and run as a container engine does: `python -m tests.packaging.image`.

Its user, an arbitrary one of group 0 (as OpenShift chooses them), a read-only root, a volume, SIGTERM to process 1, and
the health check of `packaging/Dockerfile`. Prints the compressed size. Needs root, umoci and the image in dist/.
"""

import json
import shutil
import subprocess
from pathlib import Path

from tests.packaging.root_folder import broker, child, exchange, exchange_by_grpc, in_own_network, run, stop

ROOT = Path(__file__).resolve().parents[2]
WORK = ROOT / "build" / "image-test"
COMPRESSED_BYTES_MAX = 60_000_000
OWN_USER, ANY_USER = "10001:0", "12345:0"


def main() -> None:
    archive = newest(ROOT / "dist", "firearrow-*-oci.tar")
    in_own_network("tests.packaging.image")
    shutil.rmtree(WORK, ignore_errors=True)
    layout, bundle = WORK / "oci", WORK / "bundle"
    layout.mkdir(parents=True)
    run("tar", "-C", layout, "-xf", archive)
    [tag] = [each["annotations"]["org.opencontainers.image.ref.name"] for each in index(layout)]
    run("umoci", "unpack", "--image", f"{layout}:{tag}", bundle)
    process = json.loads((bundle / "config.json").read_text())["process"]
    assert f"{process['user']['uid']}:{process['user']['gid']}" == OWN_USER
    for user in (OWN_USER, ANY_USER):
        print(f"user {user}:")
        volume = empty_volume(bundle / "rootfs", WORK / f"volume-{user.partition(':')[0]}")
        with broker(bundle / "rootfs", volume, user, process["args"]) as running:
            exchange("Image")
            exchange_by_grpc("Image5")
            assert healthy(running), "the health check fails on a running broker"
            stop(running)
        assert (volume / "store" / "commitlog").is_dir()
    size = archive.stat().st_size
    print(f"{archive.name}: {size / 1e6:.1f} MB compressed, at most {COMPRESSED_BYTES_MAX / 1e6:.0f}")
    assert size <= COMPRESSED_BYTES_MAX


def newest(folder: Path, pattern: str) -> Path:
    """SystemExit: there is none."""
    found = sorted(folder.glob(pattern), key=lambda path: path.stat().st_mtime)
    if not found:
        raise SystemExit(f"there is no {pattern} in dist/: run make deb and make image")
    return found[-1]


def index(layout: Path) -> list[dict[str, dict[str, str]]]:
    manifests: list[dict[str, dict[str, str]]] = json.loads((layout / "index.json").read_text())["manifests"]
    return manifests


def empty_volume(root: Path, volume: Path) -> Path:
    """A new volume gets owner and mode of the folder in the image, as Docker does it."""
    volume.mkdir()
    original = (root / "var" / "lib" / "firearrow").stat()
    shutil.chown(volume, original.st_uid, original.st_gid)
    volume.chmod(original.st_mode & 0o7777)
    return volume


def health_check() -> list[str]:
    """The command of HEALTHCHECK in the Dockerfile."""
    text = (ROOT / "packaging" / "Dockerfile").read_text().replace("\\\n", " ")
    [line] = [line for line in text.splitlines() if line.startswith("HEALTHCHECK")]
    command: list[str] = json.loads(line.partition("CMD")[2])
    return command


def healthy(running: "subprocess.Popen[str]") -> bool:
    """As `docker exec` runs it: in the namespaces of the container."""
    enter = ["nsenter", "--target", str(child(running)), "--pid", "--mount", "--root"]
    return subprocess.run([*enter, *health_check()], check=False).returncode == 0


if __name__ == "__main__":
    main()
