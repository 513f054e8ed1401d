"""Puts the commit that a wheel or an sdist is built from into it, for `headrace --version`.

The source tree is not written to. An sdist carries the file, so a wheel that is built from one has the same commit. An
editable install gets none: the package asks git each time.
"""

import importlib.util
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_PACKAGE = "src/headrace"


class CommitHook(BuildHookInterface):
    """hatchling finds the hook by its base class; `target_name` is `wheel` or `sdist`, `version` is `editable`, too."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        package = Path(self.root, _PACKAGE)
        described = _load(package / "version.py")
        if version == "editable" or (package / described.COMMIT_FILE).exists():
            return
        commit = described.describe_checkout(Path(self.root))
        if commit is None:
            return
        self._folder = tempfile.TemporaryDirectory(prefix="headrace-build-")
        file = Path(self._folder.name, described.COMMIT_FILE)
        file.write_text(f"{commit}\n")
        where = _PACKAGE if self.target_name == "sdist" else Path(_PACKAGE).name
        build_data["force_include"][str(file)] = f"{where}/{described.COMMIT_FILE}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        folder = getattr(self, "_folder", None)
        if folder is not None:
            folder.cleanup()


def _load(file: Path) -> Any:
    """The module in `file`. The package around it cannot be imported here: what it depends on is not installed."""
    spec = importlib.util.spec_from_file_location("headrace_version", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
