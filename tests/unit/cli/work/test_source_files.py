"""Which files of an application were changed."""

import os
from pathlib import Path

from headrace.cli.work.source_files import SourceFiles


def touched(path: Path, at_s: float) -> str:
    path.write_text("x = 1\n")
    os.utime(path, (at_s, at_s))
    return str(path)


def test_a_change_is_told_once(tmp_path: Path) -> None:
    files = SourceFiles()
    path = touched(tmp_path / "app.py", 1_000.0)
    files.watch([path], imported_at_s=2_000.0)
    assert files.changed() == []
    touched(tmp_path / "app.py", 3_000.0)
    assert files.changed() == [path]
    assert files.changed() == []


def test_a_change_after_the_import_began_counts(tmp_path: Path) -> None:
    files = SourceFiles()
    path = touched(tmp_path / "app.py", 2_001.0)
    files.watch([path], imported_at_s=2_000.0)
    assert files.changed() == [path]
    files.watch([path], imported_at_s=1_000.0)
    assert files.changed() == [], "it is watched already"


def test_a_file_that_is_deleted_and_comes_back(tmp_path: Path) -> None:
    files = SourceFiles()
    path = touched(tmp_path / "app.py", 1_000.0)
    files.watch([path], imported_at_s=2_000.0)
    os.unlink(path)
    assert files.changed() == [path]
    touched(tmp_path / "app.py", 1_000.0)
    assert files.changed() == [path]
