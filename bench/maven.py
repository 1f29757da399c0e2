"""Class paths of Java programs, resolved by Maven."""

import subprocess
from pathlib import Path

POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>bench</groupId><artifactId>peer</artifactId><version>1</version><packaging>pom</packaging><dependencies>
{}
</dependencies></project>
"""
DEPENDENCY = "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"


def class_path(folder: Path, *artifacts: str) -> str:
    """Jars of `group:artifact:version` and all that they need; `folder` keeps the answer. RuntimeError: Maven or Java
    is missing or fails."""
    listing = folder / "classpath.txt"
    pom = POM.format("\n".join(DEPENDENCY.format(*each.split(":")) for each in artifacts))
    if not listing.exists() or (folder / "pom.xml").read_text() != pom:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "pom.xml").write_text(pom)
        command = ["mvn", "-q", "-B", "-f", str(folder / "pom.xml"), "dependency:build-classpath"]
        try:
            subprocess.run(
                [*command, f"-Dmdep.outputFile={listing}"], check=True, capture_output=True, timeout=600
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise RuntimeError(f"{artifacts[0]} needs Java 17 and Maven: {error}") from None
    return listing.read_text().strip()
