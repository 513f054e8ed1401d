"""What is in the wheel and in the sdist, and what they say about themselves."""

import re
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from headrace.version import COMMIT_FILE

from .conftest import ROOT, Built

metadata = pytest.importorskip("packaging.metadata")

pytestmark = pytest.mark.xdist_group("package")

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
VERSION = PROJECT["version"]
INFO = f"headrace-{VERSION}.dist-info"


def contents(wheel: Path) -> dict[str, bytes]:
    """The files of a wheel by name; the lines of RECORD in order, which is that of the archive otherwise."""
    with zipfile.ZipFile(wheel) as archive:
        found = {name: archive.read(name) for name in archive.namelist()}
    record = f"{INFO}/RECORD"
    return found | {record: b"".join(sorted(found[record].splitlines(keepends=True)))}


def sources() -> set[str]:
    """The package's files as they are named in a wheel."""
    found = (each for package in ("headrace", "pyspark_headrace") for each in (ROOT / "src" / package).rglob("*"))
    files = (each for each in found if each.is_file() and "__pycache__" not in each.parts)
    return {str(each.relative_to(ROOT / "src")) for each in files}


def test_the_wheel_has_the_package_and_nothing_else(built: Built) -> None:
    commit = {f"headrace/{COMMIT_FILE}"} if built.commit else set()
    names = set(contents(built.wheel))
    assert {name for name in names if not name.startswith(INFO)} == sources() | commit
    assert "headrace/py.typed" in names
    info = {name.removeprefix(f"{INFO}/") for name in names if name.startswith(INFO)}
    assert info == {"METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE"}


def test_names_are_those_of_any_platform(built: Built) -> None:
    assert built.wheel.name == f"headrace-{VERSION}-py3-none-any.whl"
    assert built.sdist.name == f"headrace-{VERSION}.tar.gz"


def test_the_sdist_has_what_builds_the_wheel(built: Built) -> None:
    with tarfile.open(built.sdist) as archive:
        names = {member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()}
    top = {name.partition("/")[0] for name in names}
    files = {"CHANGELOG.md", "LICENSE", "PKG-INFO", "README.md", "constraints.txt", "hatch_build.py", "pyproject.toml"}
    assert top == {".gitignore", "docs", "src"} | files
    assert {name.removeprefix("src/") for name in names if name.startswith("src/")} >= sources()


def test_the_wheel_of_the_sdist_is_that_of_the_repository(built: Built) -> None:
    from_sdist, direct = contents(built.wheel), contents(built.direct_wheel)
    assert from_sdist.keys() == direct.keys()
    assert [name for name in direct if from_sdist[name] != direct[name]] == []


def test_both_have_the_commit_they_were_built_from(built: Built) -> None:
    if built.commit is None:
        pytest.skip("this is no git checkout")
    with tarfile.open(built.sdist) as archive:
        file = archive.extractfile(f"headrace-{VERSION}/src/headrace/{COMMIT_FILE}")
        assert file is not None
        assert file.read().decode().strip() == built.commit
    assert contents(built.wheel)[f"headrace/{COMMIT_FILE}"].decode().strip() == built.commit
    assert not (ROOT / "src" / "headrace" / COMMIT_FILE).exists()


def test_the_metadata_is_valid_and_complete(built: Built) -> None:
    files = contents(built.wheel)
    found = metadata.Metadata.from_email(files[f"{INFO}/METADATA"], validate=True)
    assert (found.name, str(found.version)) == ("headrace", VERSION)
    assert found.summary == PROJECT["description"]
    assert found.description_content_type == "text/markdown"
    assert found.description == (ROOT / "README.md").read_text()
    assert found.license_expression == "Apache-2.0"
    assert found.license_files == ["LICENSE"]
    assert files[f"{INFO}/licenses/LICENSE"] == (ROOT / "LICENSE").read_bytes()
    assert str(found.requires_python) == ">=3.11"
    python = [each for each in found.classifiers if each.startswith("Programming Language :: Python :: 3.")]
    assert [each.rpartition(" ")[2] for each in python] == ["3.11", "3.12", "3.13"]
    assert "Typing :: Typed" in found.classifiers
    assert set(found.provides_extra) == {"archive", "cluster", "dev", "otel", "site", "spark"}


def test_the_entry_points_are_the_command_and_the_pytest_plugin(built: Built) -> None:
    points = contents(built.wheel)[f"{INFO}/entry_points.txt"].decode()
    assert re.findall(r"^(?:\[.+\]|.+ = .+)$", points, flags=re.MULTILINE) == [
        *("[console_scripts]", "headrace = headrace.cli.main:main"),
        *("[pytest11]", "headrace = headrace.testing.plugin"),
    ]


def required(lines: list[str]) -> set[str]:
    return {re.split(r"[^\w.-]", line, maxsplit=1)[0].lower().replace("_", "-") for line in lines}


def test_every_requirement_has_an_exact_version(built: Built) -> None:
    """With constraints.txt an install is what was tested, whatever has been published since."""
    pinned = dict(re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), flags=re.MULTILINE))
    extras = PROJECT["optional-dependencies"].values()
    wanted = required([*PROJECT["dependencies"], *(line for lines in extras for line in lines)])
    assert wanted - {"headrace"} <= pinned.keys()
