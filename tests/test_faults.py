"""Real processes, killed at any moment; disks that are full or can't be written."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.conftest import TINY, Command, Once, config_of
from tests.test_resume import assert_same
from trip_jax.results import figures
from trip_jax.runs.launch import run

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals and mounts are POSIX's")

RUN = (*TINY, "training.rounds=25", "checkpoint.every=1", "n_clients=5")
SHORT = (*RUN, "training.rounds=5")
LONGEST = 120.0  # seconds of a run, with much to spare


@pytest.fixture(scope="module")
def whole(once: Once) -> Path:
    """A run that nothing interrupts."""
    return once("whole_with_checkpoints", lambda folder: run(config_of(*RUN), folder))


@pytest.fixture(scope="module")
def short(once: Once) -> Path:
    """A short run that nothing interrupts, without its figures."""

    def fill(folder: Path) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(figures, "draw_all", lambda _, drawn, *__: drawn.mkdir())
            run(config_of(*SHORT), folder)

    return once("short_with_checkpoints", fill)


def in_its_rounds(run: Path, chance: random.Random) -> Callable[[], bool]:
    """Some time after a round that is drawn."""
    last = chance.randrange(24)

    def comes() -> bool:
        lines = (run / "rounds.csv").read_text().count("\n")
        if lines <= last:
            return False
        time.sleep(chance.random() * 0.1)
        return True

    return comes


def while_there(run: Path, pattern: str, wait: float) -> Callable[[], bool]:
    """Up to `wait` seconds after a file of that name has come."""

    def comes() -> bool:
        if not any(run.glob(pattern)):
            return False
        time.sleep(wait)
        return True

    return comes


def in_a_save(run: Path, chance: random.Random) -> Callable[[], bool]:
    """While a checkpoint is not complete."""
    return while_there(run, "checkpoints/*.unfinished", chance.random() * 0.05)


def while_results_are_written(run: Path, chance: random.Random) -> Callable[[], bool]:
    """Between the last round and the last figure."""
    return while_there(run, "*.partial", chance.choice((0, chance.random() * 2)))


MOMENTS = (in_its_rounds, in_a_save, while_results_are_written)


@pytest.mark.thorough
def test_kills_lose_nothing(whole: Path, tmp_path: Path) -> None:
    """Runs killed three times each go on, and end with what one that is left alone finds."""
    chance, missed = random.Random(0), 0
    for number in range(10):
        run = tmp_path / str(number)
        command = [sys.executable, "-m", "trip_jax.run", *RUN, "resume=auto"]
        command.append(f"hydra.run.dir={run}")
        for moment in (*MOMENTS, None):
            with subprocess.Popen(
                command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
            ) as process:
                if moment:
                    kill_when(moment(run, chance), process)
                _, said = process.communicate(timeout=LONGEST)
            ended = (process.returncode, said)
            if moment and ended == (0, ""):
                missed += 1  # on a busy machine a moment passes unseen
                continue
            assert ended == ((-signal.SIGKILL, "") if moment else (0, "")), moment
        assert_same(run, whole)
    assert missed <= number // 2


def kill_when(comes: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    """Wait for a moment of a process, or for its end."""
    until = time.monotonic() + LONGEST
    while process.poll() is None and time.monotonic() < until:
        with suppress(OSError):  # what is looked at is not there yet
            if comes():
                process.kill()
                return
        time.sleep(0.001)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 1 MiB."""
    path = tmp_path / "disk"
    path.mkdir()
    mounted = mount("-t", "tmpfs", "-o", "size=1m", "tmpfs", str(path))
    if mounted:
        pytest.skip(f"this process may not mount a disk: {mounted}")
    yield path
    subprocess.run(["umount", str(path)], check=True)


def mount(*arguments: str) -> str:
    """What stands in the way, if anything does."""
    try:
        done = subprocess.run(["mount", *arguments], capture_output=True, text=True)
    except OSError as error:
        return str(error)
    return done.stderr.strip()


@pytest.mark.thorough
def test_a_full_disk_loses_nothing(disk: Path, short: Path, command: Command) -> None:
    arguments = (*SHORT, "resume=auto", f"hydra.run.dir={disk / 'run'}")
    filler = disk / "filler"
    filler.write_bytes(bytes(960_000))  # of two checkpoints the second or third has no room
    outcome = command(*arguments)
    assert outcome.code == 2
    assert "The checkpoint can't be written" in outcome.error
    assert "No space left on device" in outcome.error
    filler.write_bytes(bytes(580_000))
    outcome = command(*arguments)  # figures are larger than what is left
    assert outcome.code == 2 and "No space left on device" in outcome.error
    assert not (disk / "run" / "figures").exists()
    assert not mount("-o", "remount,size=20m", str(disk))
    outcome = command(*arguments)
    assert (outcome.code, outcome.err) == (0, "")
    assert_same(disk / "run", short)
    drawn = {path.stem for path in (disk / "run" / "figures").iterdir()}
    assert drawn == {"accuracy", "graph", "phi", "scores"}


def test_a_read_only_disk_is_one_sentence(disk: Path, command: Command) -> None:
    assert not mount("-o", "remount,ro", str(disk))
    outcome = command(*RUN, f"hydra.run.dir={disk / 'run'}")
    assert outcome.code == 2 and "Read-only file system" in outcome.error
