"""The roofline's counts, which need no device, and that its figures are kept one by one."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pandas
import pytest
from jax import lax
from jax.errors import JaxRuntimeError

from experiments import roofline as command
from experiments.benchmarks import roofline_check, timing
from experiments.benchmarks.program_counts import Counts, counted
from experiments.benchmarks.roofline_cases import Case, Program, Sizes, program_of
from experiments.roofline import Peaks, roofline
from tests.conftest import rarely
from trip_jax.settings.errors import InvalidSetting

TINY = Sizes(image=(8, 8, 1), samples=5 * 8, batch=4, tested=6, channels=(2, 3), hidden=4)
FORWARD = 2 * (64 * 9 * 2 + 16 * 9 * 2 * 3 + 12 * 4 + 4 * 10)
"""FLOP of one image: two layers on 8x8 and 4x4 pixels, the hidden layer, and the logits."""

N_PARAMETERS = 9 * 2 + 2 + 9 * 2 * 3 + 3 + 12 * 4 + 4 + 4 * 10 + 10


def both(function: Callable[..., Any], *given: Any, unknown: int = 1) -> dict[str, Counts]:
    """The counts of a function as it is lowered for accelerators and compiled here."""
    traced = jax.jit(function).trace(*given)
    found = {
        platform: counted(traced.lower(lowering_platforms=(platform,)).as_text("hlo"), unknown)
        for platform in ("cuda", "tpu")
    }
    return found | {"here": counted(traced.lower().compile().as_text(), unknown)}


def test_the_body_of_a_loop_counts_as_often_as_it_runs() -> None:
    a = jnp.ones((3, 3))

    def known(a: jax.Array) -> jax.Array:
        return lax.fori_loop(0, 7, lambda _, b: a @ b, a)

    def by_data(a: jax.Array, times: jax.Array) -> jax.Array:
        return lax.fori_loop(0, times, lambda _, b: known(b), a)

    for counts in both(known, a).values():
        assert (counts.flop, counts.products) == (7 * 2 * 27, 7)
    for counts in both(by_data, a, jnp.asarray(5), unknown=5).values():
        assert (counts.flop, counts.products) == (5 * 7 * 2 * 27, 5 * 7)


def test_a_kernel_reads_and_writes_what_it_touches() -> None:
    def sums(x: jax.Array) -> jax.Array:
        return lax.map(lambda row: jnp.sin(row) + 1, x)

    rows = jnp.ones((50, 1000))
    (pointwise,) = (both(lambda x: 2 * x + 1, jnp.ones(1000))["here"],)
    assert (pointwise.launches, pointwise.bytes) == (1, 8000)
    # A pass of the loop reads one row of 50, not all of them, and writes one.
    assert rows.nbytes * 2 <= both(sums, rows)["here"].bytes < rows.nbytes * 6


@pytest.mark.parametrize("form", [rarely("shifts"), "direct"])
def test_programs_do_the_networks_flop_in_few_calls(form: Any) -> None:
    """No layer is computed twice, and no loop over models or examples has come between."""
    evaluation = program_of(Case("evaluation", 5, form, "float32", 32), TINY)
    assert (evaluation.amount, evaluation.passes) == (5 * 32, 5)
    counts = evaluation.counts("cuda")
    mixing = 2 * (3 * 5 - 4) * N_PARAMETERS  # members' models before and after, and one's own
    assert counts.flop == 5 * 32 * (6 * FORWARD + mixing)
    assert counts.products == evaluation.passes * 5  # mixing, and the network's four layers
    assert counts.launches < 350 * evaluation.passes
    assert evaluation.counts("tpu").flop == counts.flop
    training = program_of(Case("training", 5, form, "float32", 5), TINY)
    assert (training.amount, training.passes) == (5 * 8, 2)
    counts = training.counts("cuda")
    first = 2 * 64 * 9 * 2  # needs no gradient of the images
    assert counts.flop == pytest.approx(training.amount * (3 * FORWARD - first), rel=0.3)
    assert counts.launches < 700 * training.passes


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "SIZES", TINY)
    monkeypatch.setattr(timing, "SHORT", 1e-9)


ASKED = ["clients=5", "works=evaluation", "chunks=32,64"]


@pytest.mark.usefixtures("tiny")
def test_a_dry_run_goes_on_where_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    done: list[Case] = []

    def noted(case: Case, sizes: Sizes) -> Program:
        if len(done) == 3 and not finished:
            raise KeyboardInterrupt
        done.append(case)
        return program_of(case, sizes)

    finished: list[bool] = []
    monkeypatch.setattr(command, "program_of", noted)
    with pytest.raises(KeyboardInterrupt):
        roofline([*ASKED, f"out={tmp_path}"])
    finished.append(True)
    roofline([*ASKED, "budget=9m", f"out={tmp_path}"])
    assert len(done) == len(set(done)) == 4  # two forms, two chunks
    (path,) = tmp_path.glob("roofline_*.csv")
    rows = pandas.read_csv(path)
    assert rows.groupby("program").size().to_dict() == {
        "compiled": 2, "lowered for cuda": 4, "lowered for tpu": 4
    }  # fmt: skip
    assert rows["median"].isna().all()
    assert (rows.groupby("models_at_once").flop.nunique() == 1).all()
    text = path.with_suffix(".md").read_text()
    assert text.count("| evaluation | 5 | shifts") == 2 and "budget" not in text
    capsys.readouterr()
    roofline([*ASKED, "budget=0s", f"out={tmp_path}"])  # all is there
    assert len(done) == 4 and "are left" not in capsys.readouterr().out
    rows.assign(jax="0.0").to_csv(path, index=False)
    with pytest.raises(InvalidSetting, match=r"figures of jax 0\.0, and here it is .*out=DIR"):
        roofline([*ASKED, f"out={tmp_path}"])


@pytest.mark.thorough
@pytest.mark.usefixtures("tiny")
def test_programs_are_timed_beside_their_floor_and_what_does_not_fit_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "require_kept_results", lambda: "checked")
    peaks = Peaks({"float32": 1e9}, 1e12)
    monkeypatch.setattr(Peaks, "of", lambda *_: peaks)
    monkeypatch.setattr(command, "_time_pytorch", lambda *_: None)

    def compiled(self: Program) -> tuple[Any, Counts]:
        if self.passes == 5:
            raise JaxRuntimeError("RESOURCE_EXHAUSTED: out of memory")
        return (lambda: jnp.zeros(())), Counts(flop=2e9, bytes=1e12, launches=7)

    monkeypatch.setattr(Program, "compiled", compiled)
    roofline([*ASKED, "dry=false", "repeats=1", f"out={tmp_path}"])
    (path,) = tmp_path.glob("roofline_*.csv")
    rows = pandas.read_csv(path)
    fits, large = (rows[rows.models_at_once == chunk] for chunk in (64, 32))
    assert (large.note == command.TOO_LARGE).all() and large["median"].isna().all()
    assert (fits.bound == "products").all()  # two seconds, against one for bytes
    assert fits.of_floor.tolist() == pytest.approx((2 * fits["median"] / 160).tolist())
    assert "more memory than there is" in path.with_suffix(".md").read_text()


def test_a_device_that_computes_something_else_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = pandas.read_csv(roofline_check.KEPT)
    monkeypatch.setattr(roofline_check, "results", lambda: kept.assign(loss=kept.loss * 1.0005))
    assert "are a CPU's within 5.0e-04" in roofline_check.require_kept_results()
    for wrong in (kept.loss * 1.01, float("nan")):
        monkeypatch.setattr(roofline_check, "results", partial(kept.assign, loss=wrong))
        with pytest.raises(InvalidSetting, match=r"differ from a CPU's by .*mend its set-up"):
            roofline_check.require_kept_results()


@pytest.mark.thorough
def test_this_device_computes_what_is_kept() -> None:
    assert "are a CPU's within" in roofline_check.require_kept_results()


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("clients=3", "clients must be at least 5"),
        ("chunks=0", "chunks at least 1"),
        ("dry=perhaps", "dry must be one of auto, true"),
        ("budget=soon", "budget=soon is no time: write budget=540s"),
        ("seed=1", "There is no setting seed here"),
        ("precision=float16", "precision must be one of float32"),
    ],
)
def test_what_cannot_be_asked_for_is_refused_and_leaves_nothing(
    tmp_path: Path, asked: str, said: str
) -> None:
    with pytest.raises(InvalidSetting, match=said):
        roofline([asked, f"out={tmp_path / 'out'}"])
    assert not (tmp_path / "out").exists()
