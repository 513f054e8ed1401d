"""Earlier versions of Headrace, run beside the current one: each is the wheel that `tests/data` has of it."""

import zipfile
from pathlib import Path

DATA = Path(__file__).parent / "data"


def wheel(version: str) -> Path:
    """The wheel of a version such as "0.1"."""
    (found,) = (DATA / version).glob("headrace-*.whl")
    return found


def environment_of(version: str, folder: Path) -> dict[str, str]:
    """For a process: with it `python -m headrace` is that version. Its code is unpacked below `folder`."""
    code = folder / f"headrace-{version}"
    if not code.exists():
        with zipfile.ZipFile(wheel(version)) as archive:
            archive.extractall(code)
    return {"PYTHONPATH": str(code)}
