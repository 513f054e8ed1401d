import stat
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from headrace.pipelines.errors import NotReady
from headrace.pipelines.run.session import check_ready, java_version, settings_for
from headrace.pipelines.spec.file import SpecFile


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_392"', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ("command not found", None),
    ],
)
def test_the_version_of_java(text, version):
    assert java_version(text) == version


def java_saying(folder: Path, text: str) -> dict[str, str]:
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho '{text}' >&2\n")
    java.chmod(java.stat().st_mode | stat.S_IXUSR)
    return {"JAVA_HOME": str(folder)}


def test_java_that_is_missing_or_old_is_one_sentence_with_what_to_do(tmp_path):
    check_ready(java_saying(tmp_path / "good", 'openjdk version "17.0.1"'))
    for environment, problem in (
        ({"PATH": str(tmp_path)}, "Spark needs Java 17 or newer and there is no java: install one"),
        ({"JAVA_HOME": str(tmp_path / "no")}, "which cannot be run (No such file or directory): install one"),
        (java_saying(tmp_path / "old", 'openjdk version "11.0.2"'), "java is 11: install one (on Debian: apt-get"),
        (java_saying(tmp_path / "odd", "who knows"), "does not say which version it is"),
    ):
        with pytest.raises(NotReady) as caught:
            check_ready(environment)
        assert problem in str(caught.value)
        assert "\n" not in str(caught.value)


def test_the_files_settings_come_before_ours(tmp_path):
    file = tmp_path / "a.toml"
    file.write_text(
        '[source]\ntopic = "a"\nformat = "raw"\n[sink]\ntopic = "b"\n[spark.settings]\n'
        '"spark.ui.enabled" = true\n"spark.sql.shuffle.partitions" = 3\n'
    )
    settings = settings_for(SpecFile(file, {}).spec, "local[4]")
    assert settings["spark.ui.enabled"] == "true"
    assert settings["spark.sql.shuffle.partitions"] == "3"
    assert settings["spark.driver.host"] == "127.0.0.1"
    assert "spark.driver.host" not in settings_for(SpecFile(file, {}).spec, "spark://somewhere:7077")
