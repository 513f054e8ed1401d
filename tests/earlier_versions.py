"""Earlier versions of Headrace, run beside the current one: each is the wheel that `tests/data` has of it."""

import zipfile
from pathlib import Path

DATA = Path(__file__).parent / "data"


def wheel(version: str) -> Path:
    """The wheel of a version such as "0.1"."""
    (found,) = (DATA / version).glob("headrace-*.whl")
    return found


def unpacked(version: str, folder: Path) -> Path:
    """The code of a version, unpacked below `folder`, to be put first on PYTHONPATH."""
    code = folder / f"headrace-{version}"
    if not code.exists():
        with zipfile.ZipFile(wheel(version)) as archive:
            archive.extractall(code)
    return code


def environment_of(version: str, folder: Path) -> dict[str, str]:
    """For a process: with it `python -m headrace` is that version, unpacked below `folder`."""
    return {"PYTHONPATH": str(unpacked(version, folder))}
