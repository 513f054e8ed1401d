"""pip's output becomes progress, and its errors advice."""

import pytest
from tools.pip_output import PipProgress, explain_failure

OUTPUT = """\
Obtaining file:///src
  Installing build dependencies: started
  Installing build dependencies: finished with status 'done'
Collecting numpy>=2.0 (from headrace==0.2.0)
  Downloading numpy-2.4.6-cp311-cp311-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl (16.9 MB)
Collecting six>=1.5 (from python-dateutil)
  Using cached six-1.17.0-py2.py3-none-any.whl (11 kB)
Collecting pyspark>=4.2 (from headrace==0.2.0)
  Downloading pyspark-4.3.0.tar.gz (455.9 MB)
  Installing build dependencies: started
Building wheels for collected packages: pyspark, headrace
  Building wheel for pyspark (pyproject.toml): started
  Building wheel for pyspark (pyproject.toml): finished with status 'done'
  Building editable for headrace (pyproject.toml): started
Installing collected packages: six, numpy, pyspark, headrace
""".splitlines()


def after(count: int) -> PipProgress:
    seen = PipProgress()
    for line in OUTPUT[:count]:
        seen.feed(line)
    return seen


@pytest.mark.parametrize(
    ("lines", "phase", "package"),
    [
        (0, "Looking up packages", ""),
        (2, "Getting build tools for", "headrace"),
        (4, "Looking up", "numpy"),
        (5, "Downloading", "numpy"),
        (9, "Downloading", "pyspark"),
        (10, "Getting build tools for", "pyspark"),
        (12, "Building", "pyspark"),
        (14, "Building", "headrace"),
        (15, "Installing", "headrace"),
    ],
)
def test_phase_and_package(lines: int, phase: str, package: str) -> None:
    seen = after(lines)
    assert (seen.phase, seen.package) == (phase, package)


def test_a_file_counts_when_it_is_complete() -> None:
    assert (after(5).file_mb, after(5).fetched_mb) == (16.9, 0)
    assert after(9).file == "pyspark-4.3.0.tar.gz"
    assert after(9).fetched_mb == pytest.approx(16.911)
    assert (after(10).file, after(10).fetched_mb) == ("", pytest.approx(472.811))


def test_what_is_to_be_installed() -> None:
    assert after(15).to_install == ["six", "numpy", "pyspark", "headrace"]


def test_lines_of_another_pip_are_ignored() -> None:
    seen = after(9)
    seen.feed("Etwas ganz anderes")
    assert seen == after(9)


@pytest.mark.parametrize(
    ("line", "advice"),
    [
        ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device", "disk is full"),
        (
            "WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError(...): [Errno -3] x')",
            "cannot be reached",
        ),
        ("Could not fetch URL x: There was a problem confirming the ssl certificate: SSLError(1)", "PIP_CERT"),
        ("ERROR: Failed building wheel for grpcio", "PYTHON=python3.12"),
        ("ERROR: No matching distribution found for numpy==2.4.6", "constraints.txt asks for"),
        ("PermissionError: [Errno 13] Permission denied: '.venv/bin/headrace'", "another user"),
        ("Something new", "pip failed."),
    ],
)
def test_errors_become_advice(line: str, advice: str) -> None:
    assert advice in explain_failure(["Collecting x", line, "ERROR: the end"], 1)


def test_no_network_is_not_taken_for_a_missing_version() -> None:
    """pip ends with the second of these lines in both cases."""
    lines = ["WARNING: Retrying after connection broken by 'ProxyError'", "ERROR: No matching distribution found for x"]
    assert "cannot be reached" in explain_failure(lines, 1)


def test_a_pip_that_was_killed() -> None:
    assert "out of memory" in explain_failure([], -9)
