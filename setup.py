"""Builds the native modules, and the mapping of the top-level folders into the `firearrow` namespace.

`build/shape/firearrow/<folder>` is a tree of links to the real folders: Cython's cimport and mypy look for the dotted
path on disk. FIREARROW_DEBUG=1 builds with bounds checks, assertions and without optimisation; FIREARROW_SANITIZE=1 so
that AddressSanitizer and UBSan watch (tests/hostile/sanitize.py).

Cython runs only when extensions are built, so that an sdist is quick to make and holds no C file made from a .pyx;
MANIFEST.in lists what it holds. `packaging/translation.py` decides which files it translates.
"""

import os
import re
import shlex
import shutil
import sys
import sysconfig
import tomllib
from pathlib import Path

from Cython import __version__ as cython_version
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
sys.path.append(str(ROOT / "packaging"))
from translation import Translation, headers  # noqa: E402 - found by the line before

FOLDERS = ("_native", "broker", "client", "spark_tools")
NAMES = "spark_tools/names"
"""The package `firearrow` itself."""
CLIENT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["firearrow"]["client-modules"]
"""The modules that the client needs: all that is built for macOS and Windows, where there is no broker."""
IMPORT = re.compile(r"^[ \t]*from firearrow\._native\.([\w.]+) import", re.M)
SHARED = "firearrow._native.base.cython_shared"
SHARED_C = ROOT / "_native" / "base" / "cython_shared.c"
"""What Cython would add to each module, memory views above all, is compiled once: a third of the code less."""
COLD = (
    "base/cython_shared.c", "base/offset_text.c", "fastpath/ack_templates.c", "grpc/plain_acks.c", "metrics/",
    "offline/", "replication/read_ahead.c", "store/files/", "store/group_commit.c", "store/log/journal_page.c",
    "store/log/queue_check.c", "store/recovery/", "store/store_cleaner.c", "store_checks/",
)  # fmt: skip
"""What computes nothing for each message, or only copies its text: -Os compiles it in two thirds of the time of -O3, to
two thirds of the size."""
if os.environ.get("FIREARROW_COMMANDS_ONLY") == "1":
    COLD += (
        "columnar/", "store/log/received_message.c", "wire/fast_send.c", "wire/message_properties.c",
        "wire/pending_calls.c", "wire/send_request.c", "wire/unique_ids.c",
    )  # fmt: skip
"""The Debian package has the client for the command line only, which computes little for each message."""
NAMES_ONLY = "_native/wire/codes.c"
"""Makes enums when it is imported: with -O3 ten seconds of the C compiler and 600 KB."""
SANITIZE = os.environ.get("FIREARROW_SANITIZE") == "1"
DEBUG = SANITIZE or os.environ.get("FIREARROW_DEBUG") == "1"
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize=alignment"]
DIRECTIVES = {
    "language_level": "3",
    "embedsignature": False,
    "boundscheck": DEBUG,
    "cdivision": True,
    "initializedcheck": DEBUG,
    "freethreading_compatible": False,
    "emit_code_comments": DEBUG,  # with them, a C file changes where only lines of a .pxd moved
}


def link_shape() -> Path:
    shape = ROOT / "build" / "shape"
    (shape / "firearrow").mkdir(parents=True, exist_ok=True)
    for folder in FOLDERS:
        link_to(ROOT / folder, shape / "firearrow" / folder)
    link_to(ROOT / NAMES / "__init__.py", shape / "firearrow" / "__init__.py")
    return shape


def link_to(source: Path, link: Path) -> None:
    if os.name == "nt":  # links need a privilege there
        if source.is_dir():
            shutil.copytree(source, link, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, link)
        return
    if link.is_symlink() and link.resolve() != source:
        link.unlink()
    if not link.is_symlink():
        link.symlink_to(source)


def missing() -> list[str]:
    """Modules of `_native` that others import, and that have no source here."""
    paths = [
        path
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*.py*")
        if path.suffix in (".py", ".pyx")
    ]
    imported = {module for path in paths for module in IMPORT.findall(path.read_text("utf-8"))}
    names = sorted(f"_native/{module.replace('.', '/')}" for module in imported)
    suffixes = ("/__init__.py", ".py", ".pyx")
    return [
        f"{name}.pyx" for name in names if not any((ROOT / f"{name}{each}").exists() for each in suffixes)
    ]


def sources() -> list[Path]:
    """The .pyx files of this platform. SystemExit: one is missing."""
    native = ROOT / "_native"
    found = sorted(native.rglob("*.pyx"))
    if (names := missing()) or not found:
        raise SystemExit(
            f"setup.py: source files are missing, such as {', '.join(names[:3]) or '_native/**/*.pyx'}; without them "
            "FireArrow does not start. Build from a whole clone or from the sdist of a release."
        )
    if sysconfig.get_platform().startswith("linux"):
        return found
    return [native / f"{name}.pyx" for name in CLIENT]


def extensions() -> list[Extension]:
    """The shared module first."""
    shared = Extension(SHARED, [str(SHARED_C.relative_to(ROOT))])
    return [shared] + [
        Extension(
            "firearrow._native." + ".".join(source.relative_to(ROOT / "_native").with_suffix("").parts),
            [str(source.relative_to(ROOT))],
            include_dirs=["_native"],
        )
        for source in sources()
    ]


def flags(compiler: str, source: str) -> list[str]:
    """`compiler`: its type, as distutils calls it. `source`: the C file."""
    if compiler == "msvc":
        return ["/O2", "/std:c11"]
    level = "-Os" if source.startswith(tuple(f"_native/{cold}" for cold in COLD)) else "-O3"
    level = "-O0" if source == NAMES_ONLY else level
    optimized = ["-O0", "-g"] if DEBUG else [level, "-g0"]  # Python's own flags have -g: 45 MB of 55
    if SANITIZE:
        optimized = ["-O1", "-g", "-fno-omit-frame-pointer", *SANITIZERS]
    # the line of a .c file in a traceback says nothing, and takes a sixth of the compiler's time
    return [*optimized, "-DCYTHON_CLINE_IN_TRACEBACK=0", "-Wno-unused-function", "-fno-strict-aliasing"]


def is_current(generated: Path) -> bool:
    """Whether this C file is there, and this version of Cython made it: modules of two versions do not mix."""
    return generated.exists() and f" {cython_version} " in generated.read_text().partition("\n")[0]


def check_compiler() -> None:
    """SystemExit: there is none, in one sentence, before Cython runs for a minute."""
    if os.name == "nt":  # setuptools looks for Visual Studio, and says so
        return
    command = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    program = shlex.split(command)[0]
    if shutil.which(program) is None:
        raise SystemExit(
            f"setup.py: this build needs a C compiler, and there is no {program}; install one (on Debian and Ubuntu "
            "gcc and libc6-dev), set CC to yours, or install a wheel of a release."
        )


def make_shared_module() -> None:
    from Cython.Build.SharedModule import generate_shared_module  # noqa: PLC0415 - most builds need no Cython
    from Cython.Compiler.Options import CompilationOptions  # noqa: PLC0415

    generate_shared_module(
        CompilationOptions(shared_c_file_path=str(SHARED_C), module_name=SHARED, language_level="3")
    )


def translate(extensions: list[Extension], shape: Path) -> None:
    from Cython.Build import cythonize  # noqa: PLC0415 - as above

    cythonize(
        extensions,
        shared_utility_qualified_name=SHARED,
        include_path=[str(shape)],
        nthreads=(os.cpu_count() or 1) if sys.platform == "linux" else 0,  # others cannot fork
        force=True,
        compiler_directives=dict(DIRECTIVES),
    )


def make_stubs() -> None:
    """The .pyi of each .pyx that is newer. SystemExit: a type is missing."""
    maker = (ROOT / "packaging" / "stubs.py").stat().st_mtime
    stale = []
    for path in sources():
        made = path.with_suffix(".pyi")
        inputs = [
            maker,
            *(each.stat().st_mtime for each in (path, path.with_suffix(".pxd")) if each.exists()),
        ]
        if not made.exists() or made.stat().st_mtime < max(inputs):
            stale.append(path)
    if not stale:
        return
    from stubs import StubError, stub_of  # noqa: PLC0415 - imports Cython

    for path in stale:
        try:
            path.with_suffix(".pyi").write_text(stub_of(path, ROOT), "utf-8")
        except StubError as error:
            raise SystemExit(f"setup.py: {error}") from None


class BuildModules(build_py):
    def run(self) -> None:
        make_stubs()
        super().run()


class BuildExtensions(build_ext):
    """Compiles the .pyx files to C first."""

    def run(self) -> None:
        check_compiler()
        make_stubs()
        shape = link_shape()
        if self.force or not is_current(SHARED_C):
            make_shared_module()
        modules = {
            Path(each.sources[0]): each for each in self.extensions if each.sources[0].endswith(".pyx")
        }
        translation = Translation(ROOT, f"cython {cython_version} {DIRECTIVES} {flags('unix', '')}")
        changed = list(modules) if self.force else translation.stale(modules)
        translation.run(changed, lambda: translate([modules[path] for path in changed], shape))
        for path, extension in modules.items():
            extension.sources = [str(path.with_suffix(".c"))]
            extension.depends = [str(header) for header in headers(path, ROOT)]
        self.extensions.sort(key=lambda each: -Path(each.sources[0]).stat().st_size)  # the longest first
        if self.editable_mode:  # setuptools gives it empty folders of its own
            name = f"{self.plat_name}-{sys.implementation.cache_tag}"
            self.build_lib, self.build_temp = f"build/lib.{name}", f"build/temp.{name}"
        super().run()

    def build_extensions(self) -> None:
        for extension in self.extensions:
            extension.extra_compile_args = flags(self.compiler.compiler_type, extension.sources[0])
            extension.extra_link_args = SANITIZERS if SANITIZE else []
        super().build_extensions()


def packages() -> list[str]:
    return [
        "firearrow." + ".".join(init.parent.relative_to(ROOT).parts)
        for folder in FOLDERS
        for init in sorted((ROOT / folder).rglob("__init__.py"))
    ]


setup(
    packages=["firearrow", *packages(), "pyspark_firearrow"],
    package_dir={f"firearrow.{folder}": folder for folder in FOLDERS}
    | {"firearrow": NAMES, "pyspark_firearrow": "spark_tools/discovery"},
    include_package_data=False,  # a package gets this, not all that is in MANIFEST.in
    package_data={
        "": ["py.typed", "*.pxd", "*.pyi", "*.h", "*.txt", "*.properties"],
        "firearrow.client.console": ["templates/*", "static/*"],
    },
    options={"build_ext": {"parallel": os.cpu_count() or 1}},
    ext_modules=extensions(),
    cmdclass={"build_ext": BuildExtensions, "build_py": BuildModules},
)
