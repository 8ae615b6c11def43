"""Client removal, correlation and dishonest clients: what they measure, keep and refuse."""

import os
import shutil
import signal
import sys
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pandas
import pytest
from scipy import stats

from experiments import client_removal as removal
from experiments.client_removal import client_removal
from experiments.correlation import (
    class_excess,
    correlation,
    explained,
    given_weight,
    residuals,
    without,
)
from experiments.dishonest import detection, dishonest
from experiments.harness.command_line import run_as_command
from experiments.harness.kept_runs import KeptRun, compose_config, read
from experiments.harness.result_table import SECONDS
from experiments.harness.statistics import bootstrap, interval_over_seeds, pearson, spearman
from experiments.paper import rescoring
from experiments.paper.small_world import SmallWorldStudy
from tests.conftest import Once, rarely, tiny_config, unrender
from trip_jax import Adversary, Defence
from trip_jax.data.federation import ClientData
from trip_jax.learning.evaluation import ACCURACY
from trip_jax.protocol.algorithm import assess, learn
from trip_jax.protocol.state import State
from trip_jax.runs.checkpoints import Checkpoints
from trip_jax.runs.prepare import prepare
from trip_jax.settings.errors import Interrupted
from trip_jax.truth.process import mixing_rule
from trip_jax.truth.reexecution import Executor

pytestmark = pytest.mark.usefixtures("quick_figures")

FEW = ("scale=smoke", "n_clients=6", "dataset.train_size=120", "dataset.test_size=60")
FEW += ("training.rounds=2", "model.hidden=[8]", "training.learning_rate=0.2")
FEW += ("training.local_epochs=1", "devices=1")
REMOVAL = (*FEW, "seed=0,1", "k=2,4", "draws=2")
LIES = (*FEW, "fraction=0.34", "amount=0.1,0.4", "defence.v_threshold=0.0")


def only(folder: Path, pattern: str) -> Path:
    (found,) = folder.glob(pattern)
    return found


@pytest.fixture(scope="module")
def removed(once: Once, thorough: bool) -> Path:
    asked = REMOVAL if thorough else (*REMOVAL, "seed=0")
    return once("removed", lambda out: client_removal([*asked, f"out={out}"]))


@pytest.fixture(scope="module")
def told_lies(thorough: bool) -> tuple[str, ...]:
    """All with `--thorough`; d1d2 shares what clients find with d1, and d2 with honest clients."""
    return ("d1", "d2", "d1d2") if thorough else ("d2", "d1d2")


@pytest.fixture(scope="module")
def lied(once: Once, told_lies: tuple[str, ...]) -> Path:
    arguments = [*LIES, f"lie={','.join(told_lies)}"]

    def fill(out: Path) -> None:
        with pytest.MonkeyPatch.context() as patch:
            unrender(patch)
            dishonest([*arguments, f"out={out}"])

    return once("lied", fill)


def first_run(folder: Path) -> KeptRun:
    return SmallWorldStudy("test", [*FEW, f"out={folder}"]).run("digits", "mlp", 0)


def test_removals_follow_the_scores(removed: Path, thorough: bool) -> None:
    frame = pandas.read_csv(only(removed, "*.csv"), keep_default_na=False)
    # Five criteria in two orders and two random orders, k of 0, 2 and 4, one or two seeds.
    assert len(frame) == (5 * 2 + 2) * 3 * (2 if thorough else 1)
    for _, rows in frame[frame.k == 0].groupby("seed"):
        assert rows.accuracy.nunique() == 1
    run = first_run(removed)
    present = np.ones(6, bool)
    present[np.argsort(-run.trip.score.values, kind="stable")[:4]] = False
    executed = read(run.folder / "removals.npz")
    (utilities,) = executed["utilities"][(executed["present"] == present).all(axis=1)]
    row = frame.query(
        "seed == 0 and criterion == 'TRIP-Shapley' and order == 'highest first' and k == 4"
    )
    assert row.accuracy.item() == pytest.approx(utilities[present, ACCURACY].mean(), abs=1e-5)
    text = only(removed, "*.md").read_text()
    assert "scale=smoke (smaller than the paper's setting)" in text
    for ending in ("png", "pdf"):
        assert only(removed, f"*.{ending}").stat().st_size > 1000


@pytest.fixture(scope="module")
def removed_by_others(removed: Path) -> Path:
    """Orders by two other methods, one of which needs gradients."""
    folder = removed.with_name("by_others")
    shutil.copytree(removed, folder, ignore=shutil.ignore_patterns("client_removal_*"))
    client_removal([*REMOVAL, "method=surrogate,fedif", f"out={folder}"])
    return folder


@pytest.mark.thorough
def test_other_methods_give_orders(removed: Path, removed_by_others: Path) -> None:
    frame = pandas.read_csv(only(removed_by_others, "*.csv"), keep_default_na=False)
    assert len(frame) == (2 * 2 + 2) * 3 * 2 and set(frame.criterion) == {"surrogate", "fedif", ""}
    by_trip = pandas.read_csv(only(removed, "*.csv"), keep_default_na=False)
    random = (by_trip.order == "random"), (frame.order == "random")
    np.testing.assert_array_equal(by_trip.accuracy[random[0]], frame.accuracy[random[1]])
    study = SmallWorldStudy("test", [*FEW, f"out={removed_by_others}"])
    for method, utility in (("surrogate", "accuracy"), ("fedif", "loss")):
        told = f"contribution.method={method}", f"contribution.utility={utility}"
        score = study.run("digits", "mlp", 0, *told).trip.score.values
        present = np.ones(6, bool)
        present[np.argsort(score, kind="stable")[:2]] = False
        executed = read(first_run(removed_by_others).folder / "removals.npz")
        (utilities,) = executed["utilities"][(executed["present"] == present).all(axis=1)]
        row = frame.query(
            f"seed == 0 and criterion == '{method}' and order == 'lowest first' and k == 2"
        )
        assert row.accuracy.item() == pytest.approx(utilities[present, ACCURACY].mean(), rel=1e-5)
    text = only(removed_by_others, "*.md").read_text()
    assert "By surrogate's score; random" in text and "| fedif | " in text


@pytest.mark.thorough
def test_kept_removals_are_those_of_a_single_execution(removed: Path) -> None:
    run = first_run(removed)
    executed = read(run.folder / "removals.npz")
    present, expected = executed["present"][-1], executed["utilities"][-1]
    process = removal.Removal(mixing_rule(run.simulation))
    (utilities,) = Executor(run.simulation, process).execute(run.simulation, present[None])
    np.testing.assert_allclose(utilities[present], expected[present], atol=1e-5)


@pytest.mark.thorough
def test_only_new_removals_are_executed(removed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    executed: list[int] = []
    original = Executor.execute

    def counting(self: Executor, simulation: Any, trains: np.ndarray, **options: Any) -> Any:
        executed.append(len(trains))
        return original(self, simulation, trains, **options)

    monkeypatch.setattr(Executor, "execute", counting)
    before = only(removed, "*.csv").read_text()
    client_removal([*REMOVAL, f"out={removed}"])
    assert executed == [] and only(removed, "*.csv").read_text() == before
    client_removal([*FEW, "k=1,2,4", "draws=2", f"out={removed}"])
    assert len(executed) == 1 and 1 <= executed[0] <= 6  # one client gone, whichever


def test_areas_between_curves() -> None:
    rows = [
        {"seed": 0, "criterion": "a", "order": order, "draw": 0, "k": k, "accuracy": value}
        for order, values in (("lowest first", (1, 1, 0.5)), ("highest first", (1, 0.5, 0.5)))
        for k, value in zip((0, 10, 40), values, strict=True)
    ]
    # A triangle of height one half over forty clients.
    assert removal.areas(pandas.DataFrame(rows), "a") == pytest.approx([0.25])
    swapped = removal.areas(pandas.DataFrame(rows), "a", "highest first", "lowest first")
    assert swapped == pytest.approx([-0.25])


def test_an_area_of_one_seed_has_the_interval_of_random_orders() -> None:
    ordered = {"lowest first": 0.9, "highest first": 0.4}
    by_chance = [0.5, 0.7, 0.9]
    rows = [
        {"seed": 0, "criterion": "", "order": "random", "draw": draw, "k": k, "accuracy": value}
        for draw, value in enumerate(by_chance)
        for k in (0, 10, 40)
    ]
    rows += [
        {"seed": 0, "criterion": "a", "order": order, "draw": 0, "k": k, "accuracy": value}
        for order, value in ordered.items()
        for k in (0, 10, 40)
    ]
    frame = pandas.DataFrame(rows)
    t = stats.t.ppf(0.975, 2) * 0.2  # the deviation of single orders
    expected = (0.5 - t * np.sqrt(2), 0.5 + t * np.sqrt(2))
    assert removal.area_interval(frame, "a") == pytest.approx(expected)
    expected = (0.2 - t * np.sqrt(4 / 3), 0.2 + t * np.sqrt(4 / 3))
    assert removal.area_interval(frame, "a", "lowest first", "random") == pytest.approx(expected)
    both = pandas.concat([frame, frame.assign(seed=1, accuracy=frame.accuracy**2)])
    expected = interval_over_seeds(np.array([0.5, 0.65]))
    assert removal.area_interval(both, "a") == pytest.approx(expected)


def test_intervals() -> None:
    low, high = interval_over_seeds(np.array([1.0, 2.0, 3.0]))
    assert (low, high) == pytest.approx(stats.t.interval(0.95, 2, 2.0, 1 / np.sqrt(3)))
    assert np.isnan(interval_over_seeds(np.array([1.0]))).all()
    rng = np.random.default_rng(0)
    x = rng.normal(size=60)
    y = x + rng.normal(size=60)
    for ours, theirs in ((pearson, stats.pearsonr), (spearman, stats.spearmanr)):
        assert ours(x, y) == pytest.approx(theirs(x, y).statistic)
        low, high = bootstrap(ours, x, y)
        assert low < ours(x, y) < high
    # Fisher's interval is another approximation of the same.
    fisher = np.tanh(np.arctanh(pearson(x, y)) + np.array([-1, 1]) * 1.96 / np.sqrt(57))
    np.testing.assert_allclose(bootstrap(pearson, x, y), fisher, atol=0.05)
    assert np.isnan(pearson(x, np.ones(60)))


@pytest.mark.thorough
def test_correlation_names_who_is_off_the_line(tmp_path: Path) -> None:
    correlation([*FEW, "distribution=sizes", f"out={tmp_path}"])
    frame = pandas.read_csv(only(tmp_path, "*.csv"))
    assert frame.level.tolist() == frame.examples.tolist()
    assert frame.given_weight.sum() == pytest.approx(6, rel=1e-5)
    pearson = stats.pearsonr(frame.level, frame.score).statistic
    assert f"| {pearson:+.3f} (" in only(tmp_path, "*.md").read_text()
    excess = frame.filter(like="excess of class").to_numpy()
    np.testing.assert_allclose(excess.sum(axis=0), 0, atol=1e-4)
    # A line through all but one, which alone is far from it.
    level = np.arange(20.0)
    score = 3 + 2 * level
    score[7] = -50
    assert np.flatnonzero(np.abs(residuals(level, score)) > 1e-9).tolist() == [7]


def test_the_excess_of_a_class_is_over_its_share_in_all() -> None:
    labels, examples = jnp.array([0, 0, 0, 1, 1, 2]), jnp.array([[0, 1, 3, 4], [5, 2, 0, 0]])
    images = jnp.zeros((6, 1, 1, 1))
    data = ClientData(images, labels, examples, jnp.array([4, 2]), images, labels)
    # Classes 0, 1 and 2 are 3/6, 2/6 and 1/6 of all; the clients own 2, 2, 0 and 1, 0, 1 of them.
    np.testing.assert_allclose(
        class_excess(data), [[0, 2 / 3, -2 / 3], [0, -2 / 3, 2 / 3]], atol=1e-12
    )


def test_what_a_regression_leaves_and_explains() -> None:
    rng = np.random.default_rng(0)
    given, noise = rng.normal(size=(50, 2)), rng.normal(size=50)
    values = 3 + given @ [2.0, -1.0] + noise
    left = without(given, values)
    np.testing.assert_allclose(given.T @ left, 0, atol=1e-10)
    np.testing.assert_allclose(left, without(given, noise), atol=1e-10)
    r_squared = 1 - left.var() / values.var()
    assert explained(given, values) == pytest.approx(1 - (1 - r_squared) * 49 / 47)
    assert np.isnan(explained(given[:3], values[:3]))


@pytest.mark.thorough
def test_weight_given_to_the_hub_of_a_star(tmp_path: Path) -> None:
    run = KeptRun(tmp_path, compose_config("ws100", [*FEW[1:], *STAR]), "test")
    weights = given_weight(run.trip)
    # The hub has 1/6 of its own model and half of the others'; a leaf 1/6 and half of its own.
    np.testing.assert_allclose(weights, [1 / 6 + 5 / 2, *[1 / 6 + 1 / 2] * 5], rtol=1e-6)


STAR = ("dataset=digits", "model=mlp", "topology=star")


@pytest.mark.parametrize(
    ("lie", "defended", "amount", "variant", "adversary"),
    [
        ("d1d2", True, 0.1, "", Adversary("d1d2", 0.34)),
        rarely("d1", False, 0.1, "", Adversary("d1", 0.34)),
        rarely("d2", True, 0.4, "", Adversary("d2", 0.34, amount=0.4)),
        rarely("d1", True, 0.1, "evasive", Adversary("d1", 0.34, fake="evasive")),
        rarely("d2", False, 0.1, "colluding", Adversary("d2", 0.34, collude=True)),
    ],
)
def test_scores_under_lies_are_those_of_whole_runs(
    lied: Path,
    told_lies: tuple[str, ...],
    lie: str,
    defended: bool,
    amount: float,
    variant: str,
    adversary: Adversary,
) -> None:
    frame = pandas.read_csv(only(lied, "*.csv"), keep_default_na=False)
    variants = len({"d1", "d2"} & set(told_lies))  # evasive and colluding ones
    assert len(frame) == 2 * (1 + len(told_lies) + 1 + variants)
    honest = first_run(lied)
    defence = Defence(c1=defended, c2=defended, v_threshold=0)
    result = honest.simulation.with_liars(adversary, defence).run()
    (row,) = frame[
        (frame.lie == lie)
        & (frame.defended == defended)
        & (frame.amount == amount)
        & (frame.variant == variant)
    ].itertuples()
    liars = result.liars
    assert row.liars == pytest.approx(result.scores[liars].mean(), abs=1e-5)
    told = honest.trip.score.values
    assert row.gain == pytest.approx((result.scores - told)[liars].mean(), abs=1e-5)
    flagged = np.asarray(result.records.flagged)
    lying = np.isin(np.arange(6), liars) & ("d2" in adversary.kind)
    assert row.c2_false == pytest.approx(flagged[:, ~lying].mean(), abs=1e-5)


@pytest.mark.thorough
def test_other_thresholds_judge_what_is_kept(
    lied: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(lied, folder, ignore=shutil.ignore_patterns("dishonest_*"))
    monkeypatch.delattr(rescoring, "_evaluate")
    thresholds = {"penalty": 0.004, "distance": 0.02, "thresholding": "hard"}
    given = [f"defence.{name}={value}" for name, value in thresholds.items()]
    dishonest([*LIES, *given, f"out={folder}"])
    frame = pandas.read_csv(only(folder, "*.csv"), keep_default_na=False)
    adversary, defence = Adversary("d2", 0.34), Defence(c1=True, c2=True, v_threshold=0)
    simulation = first_run(folder).simulation
    scores = []
    for one in (defence, replace(defence, **thresholds)):
        result = simulation.with_liars(adversary, one).run()
        scores.append(result.scores[result.liars].mean())
    assert abs(scores[0] - scores[1]) > 1e-4
    row = frame.query("lie == 'd2' and defended and amount == 0.1 and variant == ''")
    assert row.liars.item() == pytest.approx(scores[1], abs=1e-5)


@pytest.mark.usefixtures("unrendered")
def test_a_lie_alone_is_judged_as_among_others(
    lied: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(lied, folder, ignore=shutil.ignore_patterns("dishonest_*"))
    monkeypatch.delattr(rescoring, "_evaluate")
    dishonest([*LIES, "lie=d2", f"out={folder}"])
    alone, all_lies = pandas.read_csv(only(folder, "*.csv")), pandas.read_csv(only(lied, "*.csv"))
    columns = [name for name in alone.columns if name not in ("command", SECONDS)]
    wanted = all_lies.loc[all_lies.lie.isin(["honest", "d2"]), columns].reset_index(drop=True)
    pandas.testing.assert_frame_equal(alone[columns], wanted)
    assert "C1 misses" not in only(folder, "*.md").read_text()


@pytest.mark.parametrize(
    "overrides",
    [
        ("topology=complete",),  # honest clients share the rows of one game
        ("topology=complete", "contribution.budget=40"),
        ("topology=watts_strogatz", "topology.redraw_every=1"),
        ("participation=bernoulli", "participation.probability=0.7"),
    ],
)
def test_coalitions_without_a_fake_are_not_evaluated_again(overrides: tuple[str, ...]) -> None:
    simulation = prepare(tiny_config("n_clients=6", *overrides))[0]
    lies = {
        "D1": (Adversary("d1", clients=(0,)), Defence()),
        "D1 filtered": (Adversary("d1", clients=(0, 3)), Defence(c1=True, v_threshold=0.1)),
    }
    assessments = rescoring.Assessments(simulation, lies, None)
    state = simulation.start()
    learned = learn(*simulation.learning, state)
    for name, (lcv, filtered) in assessments.of_round(state, learned).items():
        game = rescoring.Game.of(assessments.under[name], state, learned)
        expected = assess(*game)
        np.testing.assert_allclose(lcv, expected.contributions.lcv, atol=5e-6)
        np.testing.assert_array_equal(filtered, expected.filtered)
        changed, rows = rescoring._changed(game)[0], game.timetable.at(state.round).work
        assert 0 < changed[: int(rows.n_rows)].sum() < rows.n_rows


@pytest.mark.parametrize("finished", [False, True])
def test_utilities_that_lies_change_give_what_assessing_all_anew_gives(
    removed: Path, finished: bool
) -> None:
    run = first_run(removed)
    lies = {
        f"{who}, {c1}": (Adversary("d1", clients=who), Defence(c1=c1, v_threshold=0.1))
        for who, c1 in product(((0,), (0, 1, 4)), (False, True))
    }
    simulation = run.simulation
    kept = run.trip.lcv.values if finished else None
    assessments = rescoring.Assessments(simulation, lies, kept)
    state, unlike = simulation.start(), 0
    for t in range(run.config.training.rounds):
        learned = learn(*simulation.learning, state)
        for name, (lcv, filtered) in assessments.of_round(state, learned).items():
            under = assessments.under[name]
            expected = assess(*under.assessing, state, learned.trained, learned.unsent)
            np.testing.assert_allclose(lcv, expected.contributions.lcv, atol=2e-6)
            np.testing.assert_array_equal(filtered, expected.filtered)
            unlike += np.abs(lcv - run.trip.lcv.values[t]).max() > 1e-3
        utility = simulation.evaluate(learned.models)
        state = State(learned.models, utility, state.phi, state.key, state.round + 1)
    assert unlike > 0


@pytest.mark.thorough
def test_what_c1_leaves_is_split_without_remainder(lied: Path) -> None:
    # Scores are linear in reports.
    frame = pandas.read_csv(only(lied, "*.csv"))
    honest, adversary = first_run(lied), Adversary("d1", 0.34)
    split = frame[frame.gain_missed.notna()]
    assert set(split.lie) == {"d1"} and split.defended.all()
    (row,) = split[split.variant.isna()].itertuples()
    defence = Defence(c1=True, v_threshold=0)
    defended = honest.simulation.with_liars(adversary, defence).run()
    gain = (defended.scores - honest.trip.score.values)[defended.liars].mean()
    assert row.gain_missed + row.gain_replaced + row.gain_other == pytest.approx(gain, abs=1e-6)
    assert abs(row.gain_missed) > 1e-4 and abs(row.gain_replaced) > 1e-4


def test_what_honest_clients_find_is_that_of_the_run(
    lied: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(lied, tmp_path / "copy")
    settings = (*FEW, "defence.v_threshold=0.0", f"out={tmp_path / 'copy'}")
    run = SmallWorldStudy("test", settings, fixed={}).run("digits", "mlp", 0)
    kept = run.folder / "lies" / "open.npz"
    evaluated = read(kept)
    kept.unlink()
    assert run.trip.lcv.size
    monkeypatch.setattr(rescoring, "_evaluate", lambda *_: pytest.fail("evaluated again"))
    found = rescoring.evaluated(run, {"open": (Adversary(), Defence())})["open"]
    for part in ("lcv", "filtered"):
        np.testing.assert_array_equal(found[part], evaluated[part])


@pytest.mark.thorough
def test_interrupted_evaluations_go_on(
    lied: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lies = {
        "open": (Adversary(), Defence()),
        "d1": (Adversary("d1", 0.34), Defence(c1=True)),
    }
    whole = rescoring.evaluated(first_run(tmp_path / "whole"), lies)
    save = Checkpoints.save

    def interrupt(self: Checkpoints, *arguments: Any) -> None:
        save(self, *arguments)
        os.kill(os.getpid(), signal.SIGTERM)

    run = first_run(tmp_path / "interrupted")
    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "save", interrupt)
        with pytest.raises(Interrupted):
            rescoring.evaluated(run, lies)
    rounds: list[int] = []
    monkeypatch.setattr(
        rescoring, "duration", lambda seconds: rounds.append(1) or f"{seconds:.0f} s"
    )
    continued = rescoring.evaluated(run, lies)
    assert len(rounds) == 1  # of two
    for name in lies:
        for part in ("lcv", "filtered"):
            np.testing.assert_array_equal(continued[name][part], whole[name][part])


@pytest.mark.parametrize(
    ("experiment", "argument", "said"),
    [
        (client_removal, "k=2,6", "k=6 leaves none of n_clients=6"),
        (client_removal, "k=two", "k must be a whole number, not 'two'"),
        (client_removal, "method=best", "method must be one of trip, weights"),
        (client_removal, "contribution.method=surrogate", "Say method=surrogate instead"),
        (client_removal, "draws=1", "draws must be at least 2, not 1"),
        (client_removal, "draws=2,3", "draws takes one value here, not '2,3'"),
        (client_removal, "contribution.semivalue=banzhaf", "leave out semivalue=banzhaf"),
        (client_removal, "k=2 contribution.budget=8", "semivalue=loo"),
        (correlation, "adversary=d2", "leave out adversary.kind"),
        (correlation, "distribution.kind=iid", "give distribution=iid"),
        (client_removal, "++contribution.semivalue=loo", "leave out semivalue=loo"),
        (dishonest, "fraction=0.01", "fraction=0.01 of n_clients=6 is less than one client"),
        (dishonest, "adversary.clients=[1]", "leave out adversary.clients"),
        (dishonest, "contribution.method=weights", "leave out contribution.method"),
        (client_removal, "scale=large", "scale must be one of smoke, cpu, paper"),
        (correlation, "distribution=pareto", "distribution"),
        (dishonest, "fraction=0.7", "fraction must lie above 0"),
        (dishonest, "amount=-1", "amount must be a number of at least 0"),
        (dishonest, "adversary.kind=d1", "adversary.kind"),
        (dishonest, "distributed=cluster", "leave it out here"),
    ],
)
def test_what_cannot_work_is_said_in_a_sentence(
    experiment: Any,
    argument: str,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["x", *FEW, *argument.split(), f"out={tmp_path}"])
    with pytest.raises(SystemExit) as stopped:
        run_as_command(experiment)
    assert stopped.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ") and said in line
    assert not list(tmp_path.iterdir())


def test_false_alarms_of_the_later_half() -> None:
    found = np.array([[True, True, True], [True, False, False], [False, True, False]])
    liar = np.broadcast_to([True, False, False], found.shape)
    counted = np.array([[True, True, False]] * 3)
    rates = detection("c", found, liar, counted)
    assert rates == {
        "c_precision": 2 / 4,
        "c_recall": 2 / 3,
        "c_false": 2 / 3,
        "c_false_later": 1 / 2,
    }
