"""The report shows what the results contain: reached, missed, left out; docs/BENCHMARKS.md is up to date."""

import json
import shutil
import sys
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench import compare, footprint, plot, profile, report, results, spark_commands
from bench.programs import ROOT
from bench.rows import Row, Sample

SVG = "{http://www.w3.org/2000/svg}"


def sample(rate: float, cpu_us: float = 1) -> Sample:
    return Sample(rate, cpu_us, p50=10, p99=20, p999=30, max=40, mb=50)


@cache
def row() -> Row:
    return next(row for row in compare.rows() if row.name == "send 64 x 1, 128 B")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "results.ndjson"


def record(file: Path, part: float = 1, **rates: float) -> None:
    result = results.row_result(row(), {name: sample(rate, 6.5) for name, rate in rates.items()})
    results.append_comparison(result, {}, part=part, rounds=1, warm_up_s={}, path=file)


def goal_lines(file: Path) -> dict[str, str]:
    """Measure → its line."""
    table = report.page(results.read(file)).partition("## Goals")[2].partition("\n## ")[0]
    return {line.split(" | ")[1]: line for line in table.splitlines() if "≥" in line or "≤" in line}


def test_goals_are_reached_or_not_or_left_out(file: Path) -> None:
    record(file, firearrow=100_000, floor=110_000)
    lines = goal_lines(file)
    assert list(lines) == ["of floor", "server CPU of floor"]
    assert lines["of floor"].startswith(f"| {row().name} | ")
    assert "| 0.9091 | 1 | reached |  |" in lines["of floor"]
    assert "| 1 | 1 | reached |" in lines["server CPU of floor"]
    page = report.page(results.read(file))
    assert "3 of 3 goals are reached." in page
    assert "Anonymous memory is at most 50 MB." in page


def test_memory_over_its_goal_is_a_line(file: Path) -> None:
    result = results.row_result(row(), {"firearrow": Sample(100_000, 1, p50=1, p99=1, p999=1, max=1, mb=101)})
    results.append_comparison(result, {}, part=1, rounds=1, warm_up_s={}, path=file)
    assert "| ≤ 100 | 101 |  | **missed** |" in goal_lines(file)[report.MEMORY]


def test_runs_whose_servers_were_not_warmed_up_do_not_count(file: Path) -> None:
    record(file, firearrow=200_000, floor=110_000)
    run = json.loads(file.read_text())
    del run["warm_up_s"]
    file.write_text(json.dumps(run) + "\n")
    assert not goal_lines(file)
    record(file, firearrow=100_000, floor=110_000)
    assert "| 0.9091 | 1 | reached |  |" in goal_lines(file)["of floor"]


def test_a_goal_that_the_floor_misses_too_is_not_listed(file: Path) -> None:
    record(file, firearrow=20_000, floor=30_000, apache=10_000)
    assert list(goal_lines(file)) == ["of floor", "server CPU of floor"]
    assert "2 of 3 goals are reached." in report.page(results.read(file))


def test_a_goal_that_only_the_floor_reaches_is_not_reached(file: Path) -> None:
    record(file, firearrow=40_000, floor=100_000, apache=10_000)
    assert "| 4 | 10 | **missed** |" in goal_lines(file)["of apache"]


def test_runs_from_before_floors_were_recorded_have_none(file: Path) -> None:
    record(file, firearrow=40_000, floor=100_000)
    run = json.loads(file.read_text())
    for goal in run["rows"][0]["goals"]:
        del goal["floor"]
    file.write_text(json.dumps(run) + "\n")
    assert "| 0.4 |  | **missed** |" in goal_lines(file)["of floor"]


def test_a_later_run_counts_for_what_it_measured(file: Path) -> None:
    record(file, firearrow=100_000, floor=110_000, apache=10_000)
    record(file, firearrow=100_000, floor=200_000)
    lines = goal_lines(file)
    assert "| 0.5 | 1 | **missed** | 0.5 to 0.909, 1 of 2 |" in lines["of floor"]
    assert "| 10 | 11 | reached |  |" in lines["of apache"]


def test_the_last_ten_runs_are_shown(file: Path) -> None:
    for rate in range(1, 13):
        record(file, firearrow=rate * 1000, floor=10_000)
    assert "| 0.3 to 1.2, 4 of 10 |" in goal_lines(file)["of floor"]


def test_a_part_of_a_run_is_no_figure(file: Path) -> None:
    record(file, part=0.1, firearrow=100_000, floor=110_000)
    assert not goal_lines(file)
    assert "No full run" in report.page(results.read(file))


def test_early_runs_are_drawn(file: Path) -> None:
    early = {"row": f"{row().name}, messages/s", "firearrow": 5, "apache": 7, "ratio": 0.7}
    line = {"at": 1, "commit": "abc", "machine": "m", "settings": [], "rows": [early]}
    file.write_text(json.dumps(line) + "\n")
    record(file, firearrow=100_000, floor=110_000)
    [panel] = [panel for panel in report.panels(results.read(file)) if panel.name == row().name]
    assert [(line.name, list(line.values)) for line in panel.lines] == [
        ("firearrow", [5, 100_000]),
        ("apache", [7, None]),
        ("floor", [None, 110_000]),
    ]
    picture = ElementTree.fromstring(plot.picture([panel]))
    assert len(picture.findall(f".//{SVG}circle")) == 4
    assert len(picture.findall(f".//{SVG}path")) == 3


def test_the_whole_picture_is_xml_with_a_panel_for_each_row(file: Path) -> None:
    record(file, firearrow=1, floor=1)
    picture = ElementTree.fromstring(plot.picture(report.panels(results.read(file))))
    names = [text.text for text in picture.iter(f"{SVG}text") if text.get("class") == "name"]
    assert names == [row.name for row in compare.rows()]


def script(root: str) -> str:
    """As perf prints it."""
    found = [
        "    ffffffff8100 __lock_text_start ([kernel.kallsyms])",
        "    ffffffff8101 __lock_text_start ([kernel.kallsyms])",
        f"    7f00 __pyx_f_9firearrow_7_native_4path_4send_6Sender_take ({root}/_native/path/send.cpython-311.so)",
        "    7f01 _PyEval_EvalFrameDefault (/usr/lib/libpython3.11.so.1.0)",
        "    7f02 [unknown] (/x/uvloop/loop.cpython-311-x86_64-linux-gnu.so)",
        "",
    ]
    return "\n".join(found)


def test_a_profile_has_shares_by_group_module_and_symbol() -> None:
    made = profile.profile_of(row().name, 5.0, script(str(ROOT)))
    assert made.samples == 5
    assert made.groups == {"kernel": 0.4, "our modules": 0.2, "Python": 0.2, "uvloop": 0.2}
    assert made.modules["path/send"] == 0.2
    assert made.top[0] == ("kernel: __lock_text_start", 0.4)
    assert any("Sender_take" in name for name, _ in made.top)
    assert profile.verdict(made).startswith("5.00 us per message: kernel 40%")
    assert "if all else were free, it would be 2.00 us" in profile.verdict(made)


def test_the_newest_run_in_spark_is_shown_and_is_no_comparison(file: Path) -> None:
    for seconds, ratio in ((9.0, 1.0), (2.0, 4.5)):
        rows = [
            {"row": "export, job", "s": seconds, "messages/s": 1_200_000, "cpu us/message": 1.5}
            | {"messages/s at best": 1_300_000},
            {"row": "export, job / export, df.write", "goal": 4.0, "ratio": ratio, "of cpu": 3.0},
        ]
        results.append("spark", path=file, master="local[2]", rows=rows)
    page = report.page(results.read(file))
    assert "| export, job | 2.0 | 1,200,000 | 1,300,000 | 1.5 |" in page
    assert "| export, job / export, df.write | ≥ 4 | 4.5 | 3.0 |" in page
    assert "9.0" not in page
    assert "No full run of the comparison" in page


def test_the_newest_run_of_spark_commands_is_shown(file: Path) -> None:
    samples = spark_commands.Samples(1000, [9.0, 2.0, 4.0], [0.003])
    found = {"sink": samples, "sink, kafka tuned": spark_commands.Samples(1000, [8.0])}
    test_the_newest_run_in_spark_is_shown_and_is_no_comparison(file)
    results.append("spark-commands", path=file, master="local[2]", rows=list(spark_commands.table(found)))
    page = report.page(results.read(file))
    assert "| sink | 1,000 | 4.0 | 250 | 3.0 |" in page
    assert "| sink / sink, kafka tuned | ≥ 1.2 | 2.0 |" in page
    assert "| export, job | 2.0 | 1,200,000 | 1,300,000 | 1.5 |" in page


def test_the_newest_figure_of_each_part_of_the_footprint_is_shown(file: Path) -> None:
    results.append("footprint", path=file, footprint={"ready_s": 0.4, "wheel_mb": 12.5})
    results.append("footprint", path=file, footprint={"ready_s": 0.2, "version_s": 0.0512})
    page = report.page(results.read(file))
    assert "| process start to ready line, empty store, median | 0.2 s | ≤ 0.25 s |" in page
    assert "| `firearrow --version`, median | 0.0512 s | ≤ 0.06 s |" in page
    assert "| wheel, packed | 12.5 MB |  |" in page
    assert "0.4 s" not in page
    assert "No full run of the comparison" in page


def test_the_footprint_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    figures = footprint.main(["--rounds", "1", "--no-record"])
    assert list(figures) == ["ready_s", "ready_min_s", "version_s", "verb_s", "anonymous_mb", "sdist_mb"]
    assert 0 < figures["version_s"] < figures["verb_s"] < figures["ready_s"] == figures["ready_min_s"]
    assert 5 < figures["anonymous_mb"] < 60
    assert 0.1 < figures["sdist_mb"] < 10
    assert f"`firearrow --version`, median: {figures['version_s']:g} s\n" in capsys.readouterr().out


def test_a_broker_that_does_not_start_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("not a folder")
    command = Path(sys.executable).with_name("firearrow")
    with pytest.raises(RuntimeError, match="the broker did not start: firearrow: "):
        footprint.start(command, tmp_path / "store")


@pytest.mark.parametrize("perf", [True, False])
def test_a_row_is_profiled(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], perf: bool
) -> None:
    if missing := [tool for tool in ("cc", "taskset") if shutil.which(tool) is None]:
        pytest.skip(f"the bench needs {missing}")
    if perf and not profile.has_perf():
        pytest.skip("perf is not there, or may not sample")
    monkeypatch.setattr(profile, "has_perf", lambda: perf)
    [made] = profile.main(["hot features", "--seconds", "1", "--part", "0.01", "--no-record"])
    assert sum(made.groups.values()) == pytest.approx(1, abs=0.01)
    assert made.groups["kernel"] > 0
    assert made.samples >= profile.TICKS_MIN
    assert bool(made.top) == perf
    assert capsys.readouterr().out.startswith(f"{made.row}: {made.cpu_us:.2f} us per message: ")


def test_a_profile_of_nothing_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="perf saw nothing"):
        profile.profile_of("x", 1, "")


def test_the_page_is_that_of_the_results() -> None:
    assert report.PAGE.read_text("utf-8") == report.page(results.read()), "run python -m bench.report"
