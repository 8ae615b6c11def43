"""Whatever environment a command is started in: the run is right, or there is one sentence."""

import errno
import io
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import trip_jax.learning.devices
from tests.conftest import TINY, Command, Once, config_of, rarely, tiny
from trip_jax import InvalidSetting, load_run
from trip_jax.cli.command import command as as_command
from trip_jax.cli.environment import OURS
from trip_jax.learning.devices import all_devices
from trip_jax.runs.launch import run
from trip_jax.settings.errors import Notice
from trip_node.cli.streams import Stream

pytestmark = pytest.mark.usefixtures("quick_figures")


@pytest.fixture(scope="module")
def whole(once: Once) -> Path:
    return once("over", lambda folder: run(config_of(*TINY), folder))


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a command makes of the process is undone."""
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, getattr(sys, name))
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    monkeypatch.setattr(sys, "warnoptions", [])  # as where nobody asks for other warnings
    monkeypatch.setenv("MPLBACKEND", "")


HOSTILE = {
    "PYTHONIOENCODING": "ascii",
    "LC_ALL": "C",
    "PYTHONCOERCECLOCALE": "0",
    "PYTHONUTF8": "0",
    "MPLBACKEND": "nonsense",
    "COLUMNS": "abc",
    "OMP_NUM_THREADS": "abc",
    "HOME": "/proc/nothing",
    "XDG_CACHE_HOME": "/proc/nothing",
    "MPLCONFIGDIR": "/proc/nothing",
    "TERM": "",
    "JAX_ENABLE_X64": "1",
    "JAX_DISABLE_JIT": "1",
    "JAX_DEBUG_NANS": "1",
    "JAX_DEFAULT_PRNG_IMPL": "rbg",
    "JAX_NUMPY_RANK_PROMOTION": "raise",
    "JAX_RANDOM_SEED_OFFSET": "7",
    "JAX_DEFAULT_MATMUL_PRECISION": "bfloat16",
    "JAX_NUM_CPU_DEVICES": "0",
}
RUN = f"{sys.executable} -m trip_jax.run {' '.join(map(repr, TINY))} hydra.run.dir=run"


def shell(folder: Path, line: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", line],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(Path.cwd())} | environment,
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.thorough
@pytest.mark.skipif(os.name != "posix", reason="pipes are a shell's")
@pytest.mark.parametrize(
    ("line", "environment"),
    [
        (f"{RUN} | head -1; exit ${{PIPESTATUS[0]}}", HOSTILE),
        (f"{RUN} <&- >&- 2>&-", {}),
        (f"{RUN} 2>&1 | true; exit ${{PIPESTATUS[0]}}", {"COLUMNS": "0"}),
    ],
)
def test_neither_environment_nor_readers_change_a_run(
    whole: Path, tmp_path: Path, line: str, environment: dict[str, str]
) -> None:
    done = shell(tmp_path, line, **environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == sorted(
        [*(path.name for path in whole.iterdir()), ".hydra"]
    )
    expected, found = load_run(whole), load_run(tmp_path / "run")
    np.testing.assert_array_equal(found.data.phi, expected.data.phi)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("line", "environment", "said"),
    [
        (RUN, {"JAX_PLATFORMS": "cuda"}, "JAX finds no device with JAX_PLATFORMS=cuda"),
        (RUN, {"JAX_PLATFORMS": "nonsense"}, "Unable to initialize backend 'nonsense'"),
        (RUN, {"XLA_FLAGS": "--xla_nonsense=1"}, "Unknown flag in XLA_FLAGS: --xla_nonsense=1"),
        (f"{RUN} > /dev/full", {}, "Not all could be printed (No space left on device)"),
    ],
)
def test_what_cannot_work_is_one_sentence(
    tmp_path: Path, line: str, environment: dict[str, str], said: str
) -> None:
    done = shell(tmp_path, line, **environment)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1) and said in done.stderr
    assert "/dev/full" not in line or load_run(tmp_path / "run").summary["status"] == "finished"


@pytest.mark.parametrize(
    ("line", "variable", "value"),
    [
        (RUN, "JAX_ENABLE_X64", "maybe"),
        rarely(f"{sys.executable} -m trip_jax --version", "JAX_NUM_CPU_DEVICES", "abc"),
        rarely("trip-jax --version", "JAX_DEFAULT_MATMUL_PRECISION", "half"),
        rarely(RUN, "JAXTYPING_DISABLE", "maybe"),
        rarely(f"{sys.executable} -m experiments.vs_shapley", "JAX_DEBUG_NANS", ""),
    ],
)
def test_what_can_not_be_read_when_it_is_imported_is_one_sentence(
    tmp_path: Path, line: str, variable: str, value: str
) -> None:
    """Before a command has begun."""
    scripts = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = shell(tmp_path, line, PATH=scripts, **{variable: value})
    assert done.returncode == 2 and not done.stdout and not list(tmp_path.iterdir())
    assert done.stderr.startswith(f"error: {variable}={value} can't be read (")
    assert done.stderr.endswith("): mend or unset it.\n") and done.stderr.count("\n") == 1


@pytest.mark.thorough
def test_python_is_told_what_to_unset(tmp_path: Path) -> None:
    done = shell(tmp_path, f"{sys.executable} -c 'import trip_jax'", JAX_ENABLE_X64="maybe")
    assert done.stderr.splitlines()[-1].endswith("environment 'JAX_ENABLE_X64'): mend or unset it.")
    assert "InvalidSetting: JAX_ENABLE_X64=maybe can't be read" in done.stderr


@pytest.mark.thorough
def test_help_may_be_cut_short(tmp_path: Path) -> None:
    for line in ("experiments.vs_shapley --help", "trip_jax settings"):
        done = shell(tmp_path, f"{sys.executable} -m {line} | true; exit ${{PIPESTATUS[0]}}")
        assert (done.returncode, done.stderr) == (0, "")


class Broken(io.StringIO):
    """A stream that fails."""

    def __init__(self, number: int):
        super().__init__()
        self.number = number

    def write(self, text: str) -> int:
        raise OSError(self.number, os.strerror(self.number))


@pytest.mark.usefixtures("streams")
@pytest.mark.parametrize(
    ("number", "code"), [(errno.EPIPE, 0), (errno.ENOSPC, 2), (errno.EBADF, 2), (errno.EIO, 2)]
)
def test_a_stream_that_fails_does_not_stop_a_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], number: int, code: int
) -> None:
    done = []

    def main() -> None:
        for _ in range(3):
            print("words", flush=True)
        done.append(True)

    monkeypatch.setattr(sys, "stdout", Broken(number))
    assert as_command(main)() == code and done
    assert (os.strerror(number) in capsys.readouterr().err) == bool(code)


def test_an_encoding_that_lacks_a_character_costs_no_line() -> None:
    written = io.BytesIO()
    stream = Stream(io.TextIOWrapper(written, encoding="ascii"))
    print("accuracy 0.5 ± 0.1, \udcff", file=stream, flush=True)
    assert written.getvalue() == b"accuracy 0.5 \\xb1 0.1, \\udcff\n"


@pytest.mark.usefixtures("streams")
def test_of_warnings_users_see_what_is_meant_for_them(
    capsys: pytest.CaptureFixture[str], recwarn: pytest.WarningsRecorder
) -> None:
    def main() -> None:
        warnings.simplefilter("always")
        warnings.warn("of a library", RuntimeWarning, stacklevel=2)
        warnings.warn("The cache is damaged.", Notice, stacklevel=2)

    assert as_command(main)() == 0
    assert capsys.readouterr().err == "warning: The cache is damaged.\n"


@pytest.fixture
def options() -> Iterator[None]:
    before = {name: jax.config.values[name] for name in OURS}
    yield
    for name, value in before.items():
        jax.config.update(name, value)


@pytest.mark.usefixtures("options", "streams")
def test_a_command_computes_as_the_settings_say() -> None:
    strange: dict[str, Any] = {"jax_enable_x64": True, "jax_default_prng_impl": "rbg"}
    for name, value in strange.items():
        jax.config.update(name, value)
    assert as_command(lambda: None)() == 0
    assert {name: jax.config.values[name] for name in OURS} == OURS


@pytest.mark.usefixtures("options")
@pytest.mark.parametrize("name", ["jax_enable_x64", "jax_disable_jit"])
def test_python_is_told_what_to_turn_off(name: str) -> None:
    jax.config.update(name, True)
    with pytest.raises(InvalidSetting, match=f"{name} is on: turn it off"):
        tiny()


def test_flags_that_would_end_the_process_are_tried_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XLA_FLAGS", "nonsense")
    with pytest.raises(InvalidSetting, match='Could not open file "nonsense"'):
        all_devices()


@pytest.mark.parametrize("error", [RuntimeError("no such backend\nat all"), AssertionError()])
def test_no_device_is_one_sentence(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setattr(trip_jax.learning.devices.jax, "devices", fail)
    monkeypatch.setenv("JAX_PLATFORMS", "cuda")
    assert "JAX_PLATFORMS=cuda; unset it" in command(*TINY, "hydra.run.dir=run").error
    assert not list(tmp_path.rglob("rounds.csv"))


def test_results_are_there_before_what_shows_them(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        assert load_run(tmp_path / "run").summary["status"] == "finished"
        raise OSError(errno.ENOSPC, "No space left on device", "a.png")

    monkeypatch.setattr("trip_jax.results.figures.draw_all", fail)
    assert "No space left" in command(*TINY, "hydra.run.dir=run").error
    assert load_run(tmp_path / "run").summary["status"] == "finished"
