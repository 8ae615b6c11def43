"""Compiled programs are kept in a folder that is the user's alone, which never breaks a run."""

import json
import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import pytest
from filelock import FileLock
from jax.experimental.compilation_cache.compilation_cache import reset_cache

from tests.conftest import TINY
from trip_jax import compilation_cache as cache
from trip_jax.settings.errors import Notice

OPTIONS = (
    "jax_compilation_cache_dir",
    "jax_compilation_cache_max_size",
    "jax_persistent_cache_min_compile_time_secs",
)
posix = pytest.mark.skipif(os.name != "posix", reason="owners and modes are POSIX's")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder that is chosen where JAX has been told none; what tests tell JAX is taken back."""
    before = {name: jax.config.values[name] for name in OPTIONS}
    monkeypatch.setattr(cache, "_chosen", {})
    monkeypatch.delenv(cache.VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    jax.config.update(OPTIONS[0], None)
    yield tmp_path / "home" / "trip_jax" / "programs"
    for name, value in before.items():
        jax.config.update(name, value)
    reset_cache()


def chosen() -> Any:
    return jax.config.values["jax_compilation_cache_dir"]


@posix
def test_the_folder_is_the_users_own_and_a_processors(home: Path) -> None:
    cache.use()
    folder = Path(chosen())
    assert folder.parent == home and folder.is_dir()
    assert {one.stat().st_mode & 0o777 for one in (home.parent, home, folder)} == {0o700}
    assert jax.config.values["jax_compilation_cache_max_size"] == cache.MAX_BYTES
    cache.use(False)
    assert chosen() is None


def test_what_the_user_has_chosen_stays(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jax.config.update("jax_compilation_cache_dir", "theirs")
    for wanted in (True, False):
        cache.use(wanted)
        assert chosen() == "theirs"
    jax.config.update("jax_compilation_cache_dir", None)
    monkeypatch.setenv(cache.VARIABLE, "off")
    cache.use()
    assert chosen() is None and not home.exists()
    monkeypatch.setenv(cache.VARIABLE, str(home.parent / "named"))
    cache.use()
    assert Path(chosen()).parent == home.parent / "named"


@posix
@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702])
def test_a_folder_that_others_may_write_to_is_refused(home: Path, mode: int) -> None:
    cache.use()
    folder = Path(chosen())
    cache.use(False)
    folder.chmod(mode)
    with pytest.warns(Notice, match=r"may be written to by others. Mend it"):
        cache.use()
    assert chosen() is None
    with warnings.catch_warnings(action="error"):
        cache.use()  # it is told once


@posix
def test_a_folder_below_one_that_others_may_replace_is_refused(home: Path) -> None:
    home.mkdir(parents=True)
    home.parent.chmod(0o777)
    with pytest.warns(Notice, match=r"trip_jax may be written to by others"):
        cache.use()
    home.parent.chmod(0o1777)  # as /tmp is: there nobody removes what is another's
    cache.use()
    assert chosen() is None  # until the next process
    cache._chosen.clear()
    cache.use()
    assert chosen()


@posix
def test_a_folder_of_somebody_else_is_refused(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home.mkdir(parents=True)
    monkeypatch.setattr(os, "getuid", lambda: home.stat().st_uid + 1)
    with pytest.warns(Notice, match="belongs to somebody else"):
        cache.use()
    assert chosen() is None


@pytest.mark.parametrize("blocked", ["file", "unwritable"])
def test_a_folder_that_cannot_be_used_costs_a_notice(
    home: Path, monkeypatch: pytest.MonkeyPatch, blocked: str
) -> None:
    if blocked == "file":
        home.parent.mkdir(parents=True)
        home.write_text("")
    else:
        monkeypatch.setattr(os, "access", lambda *_: False)  # root may write anywhere
    with pytest.warns(Notice, match=r"Compiled programs are not kept: .*programs"):
        cache.use()
    assert chosen() is None


def test_a_folder_that_fails_later_costs_the_compilation_alone(home: Path) -> None:
    """As where the disk is full, or the folder is removed and its name taken."""
    cache.use()
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    folder = Path(chosen())
    assert jax.jit(lambda x: 2 * x + 1)(3.0) == 7 and list(folder.glob("jit__lambda*-cache"))
    shutil.rmtree(folder)
    folder.write_text("")
    with pytest.warns(UserWarning, match=r"Error (reading|writing) persistent compilation cache"):
        assert jax.jit(lambda x: 2 * x + 2)(3.0) == 8


def test_what_was_cut_off_and_the_oldest_of_too_many_go(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "MAX_ENTRIES", 2)
    home.mkdir(parents=True)
    for used, name in enumerate("cab"):
        (home / f"{name}-cache").write_bytes(b"program")
        (home / f"{name}-atime").write_bytes(used.to_bytes(8, "little"))
    (home / "d-cache").write_bytes(b"pro")
    (home / "e-atime").write_bytes(b"12345678")
    (home / "f-cache").write_bytes(b"program")
    (home / "f-atime").write_bytes(b"123")
    (home / "notes.txt").write_text("the user's")
    with FileLock(home / ".lockfile"):
        cache._tidy(home)  # another process is at work
    assert len(list(home.glob("*-*"))) == 10
    cache._tidy(home)
    left = {path.name for path in home.iterdir()} - {".lockfile"}
    assert left == {"a-cache", "a-atime", "b-cache", "b-atime", "notes.txt"}


@pytest.mark.thorough
def test_the_next_command_compiles_less_and_damage_costs_nothing(tmp_path: Path) -> None:
    """Kept programs are taken, damaged ones compiled again; results are the same."""
    environment = {
        name: value for name, value in os.environ.items() if not name.upper().startswith("JAX_")
    } | {"XDG_CACHE_HOME": str(tmp_path / "home")}

    def scores(run: str, *more: str) -> list[float]:
        command = [sys.executable, "-m", "trip_jax.run", *TINY, f"hydra.run.dir={run}", *more]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
        )
        assert (done.returncode, done.stderr) == (0, "")
        found: list[float] = json.loads((tmp_path / run / "summary.json").read_text())["scores"]
        return found

    without = scores("without", "keep_programs=false")
    assert not (tmp_path / "home").exists()
    assert scores("first") == without
    kept = sorted((tmp_path / "home").rglob("*-cache"))
    assert kept
    before = {path: path.stat().st_mtime_ns for path in kept}
    assert scores("second") == without
    assert {path: path.stat().st_mtime_ns for path in kept} == before
    for path in kept:
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    assert scores("third") == without
