"""How tests start Spark: SPARK_HOME, SPARK_CONF_DIR, and class data that all JVMs of this checkout share."""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

BUILT = Path(__file__).resolve().parents[2] / "build" / "spark"
ONE_COMPILER, ONE_COLLECTOR = "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"
QUICK_JVM = f"{ONE_COMPILER} {ONE_COLLECTOR}"
"""They run for seconds: the second compiler and parallel collectors do not pay off."""
DEFAULTS = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "1"}
TRAINING = """
import sys
from pyspark.sql import SparkSession, functions as F
from tests.spark.damaged_store import COUNT, fill
from tests.support.stores import open_store
from firearrow.spark_tools.sessions import register
from pathlib import Path

folder = Path(sys.argv[1])
with open_store(folder / "store") as store:
    fill(store, COUNT)
spark = SparkSession.builder.master("local[2]").getOrCreate()
register(spark)
log = spark.read.format("rocketmq").load(str(folder / "store"))
log.groupBy("tags").agg(F.count("*").alias("n")).orderBy("n").collect()
log.write.parquet(str(folder / "rows"))
copied = spark.read.parquet(str(folder / "rows")).where("queueId = 1")
spark.createDataFrame([("t1",)], "tags string").join(copied, "tags").collect()
stream = spark.readStream.format("rocketmq").option("startingOffsets", "earliest").load(str(folder / "store"))
to = stream.writeStream.format("parquet").option("checkpointLocation", str(folder / "checkpoint"))
to.trigger(availableNow=True).start(str(folder / "streamed")).awaitTermination()
spark.sparkContext.parallelize(range(2), 2).map(str).collect()
jvm = spark.sparkContext._gateway.proc
spark.stop()
jvm.stdin.close()
jvm.wait()
"""


def spark_home(folder: Path) -> Path:
    """A SPARK_HOME whose files are those of the installed PySpark, so that a local cluster writes into a folder of the
    test.

    Archives of Python packages are folders here: from an archive, each process would compile what it imports.
    """
    installed = package_folder("pyspark")
    folder.mkdir()
    for path in installed.iterdir():
        if path.name not in ("work", "python"):
            (folder / path.name).symlink_to(path)
    for archive in (installed / "python" / "lib").glob("*.zip"):
        package = archive.stem.partition("-")[0]
        unpacked = folder / "python" / "lib" / archive.name
        unpacked.mkdir(parents=True)
        (unpacked / package).symlink_to(package_folder(package))
    return folder


def package_folder(package: str) -> Path:
    spec = find_spec(package)
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return Path(next(iter(spec.submodule_search_locations)))


def environment(folder: Path) -> dict[str, str]:
    """What a process that starts Spark needs: this interpreter, this tree, the loopback, JVMs that start quickly."""
    home, root = spark_home(folder / "home"), Path(__file__).resolve().parents[2]
    names = {
        "SPARK_HOME": str(home),
        "SPARK_LAUNCHER_OPTS": QUICK_JVM,
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": str(root),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYTHONWARNINGS": "ignore",
    }
    shared = _class_data(folder, names)
    return names | {"SPARK_CONF_DIR": _conf(folder / "conf", f"-XX:SharedArchiveFile={shared}")}


def _conf(folder: Path, class_data: str) -> str:
    """A SPARK_CONF_DIR. Spark puts it on the class path, where a folder with files would keep JVMs from sharing class
    data; a colon in its name makes two folders of it there that do not exist."""
    conf = folder.with_name(f"{folder.name}:not-on-the-class-path")
    conf.mkdir()
    settings = DEFAULTS.copy()
    for who in ("driver", "executor"):
        # also where a program chooses its collector
        settings[f"spark.{who}.defaultJavaOptions"] = (
            f"{ONE_COMPILER} -Xlog:disable -Xshare:auto {class_data}"
        )
        settings[f"spark.{who}.extraJavaOptions"] = ONE_COLLECTOR
    lines = (f"{name} {value}\n" for name, value in settings.items())
    (conf / "spark-defaults.conf").write_text("".join(lines))
    return str(conf)


def _class_data(folder: Path, names: dict[str, str]) -> Path:
    """The loaded classes of a small program, made once per checkout, Java and PySpark. With them a session takes half
    of the CPU time; a JVM that finds that they are of other files loads its classes as usual.

    The folder from which they were loaded has to stay.
    """
    java = shutil.which("java", path=f"{os.environ['JAVA_HOME']}/bin" if "JAVA_HOME" in os.environ else None)
    assert java is not None
    paths = [Path(java).resolve(), *sorted((package_folder("pyspark") / "jars").iterdir())]
    key = str([(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in paths])
    made = BUILT / hashlib.sha256(key.encode()).hexdigest()[:16]
    BUILT.mkdir(parents=True, exist_ok=True)
    with (BUILT / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        shared = made / "classes.jsa"
        if not shared.exists():
            for old in BUILT.iterdir():
                if old.is_dir():
                    shutil.rmtree(old)
            made.mkdir()
            new, work = made / "new.jsa", folder / "training"
            work.mkdir()
            conf = _conf(folder / "training-conf", f"-XX:ArchiveClassesAtExit={new}")
            subprocess.run(
                [sys.executable, "-c", TRAINING, str(work)],
                cwd=work,
                env=os.environ
                | names
                | {"SPARK_CONF_DIR": conf, "SPARK_HOME": str(spark_home(made / "home"))},
                capture_output=True,
                timeout=280,
                check=True,
            )
            os.replace(new, shared)
    return shared
