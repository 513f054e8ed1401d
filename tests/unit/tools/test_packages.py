"""Debian packages are installed only if their command is missing, and only where that is possible."""

import os
from pathlib import Path

import pytest
from tools import packages


def test_only_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "15").mkdir()
    (tmp_path / "15/postgres").touch()
    needs = ["sh=dash", "no-such-command=kcat", f"{tmp_path}/*/postgres=postgresql", f"{tmp_path}/*/etcd=etcd-server"]
    assert packages.missing_packages(needs) == ["kcat", "etcd-server"]


@pytest.fixture
def apt_get(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An apt-get that writes down how it was called, and fails to install before an update."""
    (tmp_path / "apt-get").write_text(
        f'#!/bin/sh\necho "$*" >> {tmp_path}/calls\n'
        f"case $1 in update) touch {tmp_path}/updated;; install) test -e {tmp_path}/updated "
        '|| { echo "E: Unable to locate package kcat"; exit 100; }; echo "Setting up kcat (1.7) ...";; esac\n'
    )
    (tmp_path / "apt-get").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    return tmp_path


def test_package_lists_are_updated_when_the_install_fails(apt_get: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert packages.main(["no-such-command=kcat"]) == 0
    install = "install -y --no-install-recommends kcat"
    assert (apt_get / "calls").read_text().splitlines() == [install, "update", install]
    shown = capsys.readouterr().err
    assert "Installing kcat with apt-get, which tests need." in shown
    assert "Installed 1 Debian packages and what they need in 0 s." in shown


def test_an_apt_get_that_fails_is_an_error(apt_get: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (apt_get / "apt-get").write_text('#!/bin/sh\necho "E: Unable to locate package kcat"; exit 100\n')
    assert packages.main(["no-such-command=kcat"]) == 1
    assert "E: Unable to locate package kcat" in capsys.readouterr().err


def test_nothing_is_called_when_nothing_is_missing(apt_get: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert packages.main(["sh=dash"]) == 0
    assert not (apt_get / "calls").exists()
    assert capsys.readouterr().err == ""


def test_others_than_root_are_told_the_command(
    apt_get: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert packages.main(["no-such-command=kcat"]) == 0
    assert "sudo apt-get install kcat" in capsys.readouterr().err
    assert not (apt_get / "calls").exists()
