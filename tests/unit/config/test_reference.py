from pathlib import Path

from headrace.config.reference import main, render_reference

REFERENCE = Path(__file__).parents[3] / "docs" / "settings.md"


def test_the_reference_is_current() -> None:
    assert REFERENCE.read_text("utf-8") == render_reference(), (
        "run python -m headrace.config.reference docs/settings.md"
    )


def test_it_is_written_where_it_is_told(tmp_path: Path) -> None:
    target = tmp_path / "settings.md"
    assert main([str(target)]) == 0
    assert "`log.retention.ms`" in target.read_text("utf-8")
    assert main([]) == 2
