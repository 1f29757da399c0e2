"""The packages for tests of services carry the version of FireArrow, and use the same script."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
JUNIT5 = ROOT / "packaging" / "junit5"
GO = ROOT / "packaging" / "go"


def test_the_versions_are_that_of_pyproject() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    own = r"<groupId>io\.github\.firearrow</groupId>\s*<artifactId>[\w-]+</artifactId>\s*<version>(.*?)</version>"
    texts = [
        path.read_text("utf-8") for path in sorted(JUNIT5.rglob("pom.xml")) if "target" not in path.parts
    ]
    found = [re.findall(own, text) for text in (*texts, (JUNIT5 / "README.md").read_text("utf-8"))]
    assert found == [[version]] * 4
    for page in (GO / "README.md", GO / "example" / "go.mod"):
        assert re.findall(r"firearrowtest[ @]v([\w.-]+)", page.read_text("utf-8")) == [version], page


def test_both_run_the_broker_by_the_same_script() -> None:
    scripts = sorted(
        path for path in (ROOT / "packaging").rglob("run_broker.sh") if "target" not in path.parts
    )
    assert [path.relative_to(ROOT).parts[1] for path in scripts] == ["go", "junit5"]
    assert scripts[0].read_bytes() == scripts[1].read_bytes()


def test_the_readmes_have_the_example() -> None:
    """As it is run in tests/interop."""
    pages = {
        JUNIT5 / "README.md": JUNIT5 / "example/src/test/java/example/InvoicesTest.java",
        GO / "README.md": GO / "example/invoices_test.go",
    }
    for page, source in pages.items():
        assert source.read_text("utf-8") in page.read_text("utf-8"), page
