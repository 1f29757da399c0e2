"""Workflows, forms and the release text: checked by the schemas of their readers, and by what they must hold."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
SCHEMAS = {
    "vendor.dependabot": [GITHUB / "dependabot.yml"],
    "vendor.github-issue-config": [GITHUB / "ISSUE_TEMPLATE" / "config.yml"],
    "vendor.github-issue-forms": [GITHUB / "ISSUE_TEMPLATE" / f"{name}.yml" for name in ("bug", "feature")],
    "vendor.github-workflows": WORKFLOWS,
    "custom.github-workflows-require-timeout": [path for path in WORKFLOWS if path.name != "release.yml"],
}
"""A job that calls another workflow cannot have a time-out."""
RELEASE_TEXT = ROOT / "packaging" / "release_text.py"


@pytest.mark.parametrize("schema", SCHEMAS)
def test_files_fit_their_schema(schema: str) -> None:
    command = [Path(sys.executable).parent / "check-jsonschema", "--builtin-schema", schema, *SCHEMAS[schema]]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned_by_commit(path: Path) -> None:
    """With the tag in a comment, which dependabot keeps. A tag can be moved to other code."""
    for used in re.findall(r"^ *(?:- )?uses: (.*)$", path.read_text("utf-8"), re.M):
        assert used.startswith("./") or re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", used), used


def test_a_tag_has_one_commit_in_all_workflows() -> None:
    text = "".join(path.read_text("utf-8") for path in WORKFLOWS)
    used = set(re.findall(r"uses: ([\w/-]+)@(\w{40}) # (\S+)", text))
    assert len(used) == len({action for action, _, _ in used})


def test_the_release_builds_every_python_that_is_tested() -> None:
    tested = re.findall(r'python: \[("3\.11".*)\]', (GITHUB / "workflows" / "build.yml").read_text("utf-8"))[
        0
    ]
    built = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["cibuildwheel"]["build"]
    assert built == [f"cp{version.replace('.', '')}-*" for version in re.findall(r"[\d.]+", tested)]


def test_pre_commit_runs_what_lint_runs() -> None:
    assert re.findall(r"entry: (.*)", (ROOT / ".pre-commit-config.yaml").read_text("utf-8")) == ["make lint"]


def test_dependabot_looks_where_dependencies_are() -> None:
    text = (GITHUB / "dependabot.yml").read_text("utf-8")
    listed = {folder.strip("/") for folder in re.findall(r"/packaging[\w/]*", text)}
    found = {
        path.parent.relative_to(ROOT).as_posix()
        for name in ("go.mod", "pom.xml", "Dockerfile")
        for path in (ROOT / "packaging").rglob(name)
    }
    assert {
        folder for folder in found if not any(folder.startswith(f"{each}/") for each in found & listed)
    } <= listed


def printed(*arguments: str, script: Path = RELEASE_TEXT) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, script, *arguments], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("tag", "changelog", "text", "fault"),
    [
        (
            "v1.2.0",
            "## 1.2.0 \u2013 2026-01-31\n\n- New.\n\n## 1.1.0 \u2013 2025-01-31\n\n- Old.\n",
            "- New.\n",
            "",
        ),
        ("v1.1.0", "## 1.2.0 \u2013 2026-01-31\n\n- New.\n", "", "the tag v1.1.0 is not the version"),
        ("v1.2.0", "## 1.1.0 \u2013 2026-01-31\n\n- New.\n", "", "CHANGELOG.md has no section 1.2.0"),
        (
            "v1.2.0",
            "## 1.2.0 \u2013 not released\n\n- New.\n",
            "",
            "write the date of the release after 1.2.0",
        ),
        ("v1.2.0", "## 1.2.0 \u2013 2026-01-31\n\n## 1.1.0\n", "", "the section of 1.2.0 is empty"),
    ],
)
def test_the_text_of_a_release(tmp_path: Path, tag: str, changelog: str, text: str, fault: str) -> None:
    (tmp_path / "packaging").mkdir()
    script = Path(shutil.copy(RELEASE_TEXT, tmp_path / "packaging"))
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "1.2.0"\n')
    (tmp_path / "CHANGELOG.md").write_text(f"# Changelog\n\n{changelog}", "utf-8")
    done = printed(tag, script=script)
    assert (done.stdout, done.returncode) == (text, int(bool(fault)))
    assert fault in done.stderr


def test_the_changelog_has_the_version_of_the_project() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    assert re.search(rf"^## {re.escape(version)} ", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.M)
