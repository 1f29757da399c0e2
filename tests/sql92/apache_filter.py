"""Results of Apache's own filter, in batches (see Judge.java)."""

import base64
import subprocess
from collections.abc import Iterable
from pathlib import Path

from tests.interop.toolchain import java_class_path

Case = tuple[str, list[dict[str, str]]]
ANSWER_S = 300


def apache_results(cases: Iterable[Case]) -> list[str]:
    """For each expression a letter per property set (T, F, N unknown, X failed), or `! ` and why it is invalid."""
    asked = "".join(
        " ".join([_coded(text), *(_coded(_joined(one)) for one in sets)]) + "\n" for text, sets in cases
    )
    command = ["java", "-XX:TieredStopAtLevel=1", "-cp", java_class_path("client5"), "Judge.java"]
    done = subprocess.run(
        command,
        input=asked,
        capture_output=True,
        text=True,
        timeout=ANSWER_S,
        check=True,
        cwd=Path(__file__).parent,
    )
    return [
        "! " + base64.b64decode(line[2:]).decode() if line.startswith("! ") else line
        for line in done.stdout.splitlines()
    ]


def _coded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _joined(properties: dict[str, str]) -> str:
    return "".join(f"{name}\x01{value}\x02" for name, value in properties.items())
