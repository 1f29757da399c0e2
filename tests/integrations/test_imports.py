"""Who does not use a framework neither imports it nor needs it."""

import subprocess
import sys

import pytest

FRAMEWORKS = {
    "django": "django",
    "dramatiq": "dramatiq",
    "fastapi": "fastapi",
    "opentelemetry": "opentelemetry",
    "sqlalchemy": "outbox.sqlalchemy",
    "taskiq": "taskiq",
}
"""Package → module of `client/integrations`; the extra has the name of the package."""


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )


def test_the_client_imports_no_framework() -> None:
    done = run(
        "import sys, firearrow.client.public, firearrow.client.blocking, firearrow.client.integrations.task_session\n"
        f"print(sorted({set(FRAMEWORKS)!r} & sys.modules.keys()))"
    )
    assert done.stdout == "[]\n", done.stderr


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_missing_framework_is_one_sentence(framework: str) -> None:
    done = run(
        f"import sys; sys.modules[{framework!r}] = None\n"
        f"import firearrow.client.integrations.{FRAMEWORKS[framework]}"
    )
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last == f"ModuleNotFoundError: {framework} is missing: pip install 'firearrow[{framework}]'"
