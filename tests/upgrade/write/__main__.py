"""Write the data sets of a version with the wheel of it, which is in `tests/data/<version>/`:

    python -m tests.upgrade.write 0.1                # all
    python -m tests.upgrade.write 0.1 single-killed  # some

Brokers, pipelines and the SDK are those of the wheel. It needs etcd, Java and a C compiler, and takes a few minutes;
five minutes later every lease in the data sets is over, and tests can open them.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.earlier_versions import DATA, unpacked

ROOT = Path(__file__).parents[3]
_CODE = "TEST_WRITING_CODE"


def main() -> None:
    version, *names = sys.argv[1:]
    if _CODE in os.environ:
        _write(Path(os.environ[_CODE]), DATA / version, names)
        return
    with tempfile.TemporaryDirectory(prefix="headrace-writing-") as folder:
        code = unpacked(version, Path(folder))
        env = {
            **os.environ,
            _CODE: str(code),
            "PYTHONPATH": f"{code}{os.pathsep}{ROOT}",
        }
        subprocess.run([sys.executable, "-m", "tests.upgrade.write", version, *names], check=True, env=env, cwd=folder)


def _write(code: Path, target: Path, names: list[str]) -> None:
    import headrace
    from tests.upgrade.write.cluster import write_cluster
    from tests.upgrade.write.pipeline import write_pipeline
    from tests.upgrade.write.single import write_single

    assert Path(headrace.__file__).is_relative_to(code), f"{headrace.__file__} is not of the wheel"
    sets: dict[str, Callable[[Path, Path], None]] = {
        "single-stopped": partial(write_single, is_killed=False),
        "single-killed": partial(write_single, is_killed=True),
        "cluster": write_cluster,
        "pipeline": write_pipeline,
    }
    for name in names or sets:
        with tempfile.TemporaryDirectory(prefix="headrace-data-") as folder:
            sets[name](Path(folder), target)
        print(f"{name}: {(target / f'{name}.tar.xz').stat().st_size} bytes")


if __name__ == "__main__":
    main()
