"""What every way to tell contributions says of itself is what its runs write."""

import re
from dataclasses import dataclass, replace
from pathlib import Path

import jax
import networkx as nx
import numpy as np
import pytest
import xarray

from tests.conftest import TINY, Command, rarely, tiny
from trip_jax import Contribution, InvalidSetting, load_run, load_sweep
from trip_jax.data.partition import Partition
from trip_jax.learning.evaluation import LOSS
from trip_jax.protocol.contributions import METHODS, Method
from trip_jax.protocol.coordinator import trace
from trip_jax.protocol.methods import facts
from trip_jax.protocol.methods.facts import (
    GAIN,
    REPORT,
    About,
    Amount,
    Costs,
    Sees,
    Sizes,
    Unit,
    When,
)
from trip_jax.protocol.methods.neighbourhood import ByNeighbourhood, Neighbourhood
from trip_jax.results.dataset import lcv_by_contributor, to_dataset
from trip_jax.results.meaning import about, explain, in_a_sentence, unit
from trip_jax.results.result import Timing
from trip_jax.runs.costs import costs
from trip_jax.runs.reports import recorded_reports

SIZES = Sizes(m=3, n=6, P=100, budget=50, Q=40)


pytestmark = pytest.mark.usefixtures("quick_figures")


@pytest.fixture(autouse=True)
def forgotten_afterwards(monkeypatch: pytest.MonkeyPatch, kept_namesakes: None) -> None:
    monkeypatch.setattr(METHODS, "_named", dict(METHODS._named))


@pytest.mark.parametrize("name", list(METHODS))
def test_what_a_method_says_is_what_its_run_writes(name: str) -> None:
    """On a ring of six, where every neighbourhood has three members."""
    method = METHODS[name]
    simulation = tiny(nx.cycle_graph(6), contribution=Contribution("loss", method=name, budget=100))
    result = simulation.run()
    rounds, n = result.records.train_loss.shape
    P, Q = simulation.learner.model.theta.size, simulation.learner.n_logits
    sizes = Sizes(m=3, n=n, P=P, budget=100, Q=Q)
    data = to_dataset(result, Partition(simulation.data, np.zeros(n), "level"), name)

    assert data.phi.units == data.score.units == ("nat" if method.unit == GAIN else "1")
    assert about(data.attrs) == About.read(data.attrs) == method.about()
    expected = "decrease of test loss in nats" if method.unit == GAIN else method.unit.words
    assert unit(data.attrs).removeprefix("m × ") == expected

    assert (result.records.kept is not None) == (method.sees in (Sees.ALL_MODELS, Sees.PREDICTIONS))
    traced = np.asarray(trace(recorded_reports(data, "loss", data.normalization), n)[0])
    same = np.allclose(traced, result.phi, atol=1e-5)
    assert same == (method.told is When.EACH_ROUND)
    reported = result.records.lcv[..., LOSS].any()
    assert reported == (method.told is When.EACH_ROUND or method.reports_as is not None)

    found, each = costs(result), n * rounds
    evaluated = Timing.total(result.timings).coalitions
    assert evaluated == each * method.costs.amount("evaluations").of(sizes)
    sent = found["bytes_sent"]["contributions"] + found["bytes_sent"]["reports"]
    assert sent == each * method.costs.amount("n_bytes").of(sizes)


@pytest.mark.parametrize("name", list(METHODS))
def test_formulas_of_costs_are_what_is_computed(name: str) -> None:
    for of in ("evaluations", "gradients", "n_bytes", "final_evaluations", "final_gradients"):
        amount = METHODS[name].costs.amount(of)
        for sizes in (SIZES, replace(SIZES, budget=5), replace(SIZES, m=7)):
            written = re.sub(r"(?<=[4P]) (?=[PQm(])", " * ", amount.formula.replace("^", "**"))
            assert amount.of(sizes) == eval(written, {"min": min} | vars(sizes)), amount.formula


@pytest.mark.parametrize("name", list(METHODS))
def test_methods_that_need_gradients_refuse_accuracy(name: str) -> None:
    contribution = Contribution("accuracy", method=name)
    if METHODS[name].costs.needs_gradients:
        with pytest.raises(InvalidSetting, match=f"{name} needs gradients, and accuracy has none"):
            contribution.build()
    else:
        assert isinstance(contribution.build(), METHODS[name])
    assert isinstance(Contribution("loss", method=name).build(), METHODS[name])


@dataclass(frozen=True)
class Attention(ByNeighbourhood):
    """It is the time that a client spends on a member's model."""

    unit = Unit("hours of attention", "h")
    costs = Costs(n_bytes=REPORT)
    sends_before = False

    def of(self, near: Neighbourhood, learner: object) -> jax.Array:
        return 2 * near.shares[:, None]


def test_a_method_of_ones_own_has_its_own_unit_everywhere(command: Command) -> None:
    METHODS("attention")(Attention)
    arguments = "contribution.method=attention", "contribution.utility=loss"
    outcome = command(*TINY, *arguments, "hydra.sweep.dir=runs", "-m", "seed=1")
    assert outcome.code == 0 and "in hours of attention." in outcome.out.replace("\n", " ")
    (folder,) = (page.parent for page in Path("runs").glob("*/report.html"))
    run = load_run(folder)
    assert run.data.phi.units == run.data.score.units == run.data.lcv.units == "h"
    assert run.summary["score_unit"] == {"words": "hours of attention", "symbol": "h"}
    page = (folder / "report.html").read_text()
    assert "hours of attention" in page and "spends on a member" in page and "nats" not in page

    del METHODS._named["attention"]  # as in a process that has not registered it
    assert unit(run.data.attrs) == "hours of attention"
    assert "It is the time that a client spends" in explain(run.data.attrs)[1]
    assert lcv_by_contributor(run.data, "loss").units == "h"
    assert load_sweep("runs").score.units == "h"


@pytest.mark.parametrize(
    "setting", ["budget=50", *map(rarely, ("normalization=efficient", "estimator=permutation"))]
)
def test_a_setting_that_a_method_of_ones_own_does_not_read_is_refused(
    setting: str, command: Command
) -> None:
    METHODS("attention")(Attention)
    outcome = command(*TINY, "contribution.method=attention", f"contribution.{setting}")
    assert outcome.code == 2
    assert f"contribution.{setting.partition('=')[0]} has no effect with" in outcome.error
    assert "contribution.method=attention: leave it out" in outcome.error


def test_a_field_of_a_method_is_the_setting_of_that_name() -> None:
    @dataclass(frozen=True)
    class Frugal(Attention):
        reads = ("budget",)
        budget: int

    METHODS("frugal")(Frugal)
    assert Contribution(method="frugal", budget=7).build() == Frugal(7)


def test_a_method_that_does_not_say_what_it_is_is_refused() -> None:
    class Mute(Method):
        reads = ()

    with pytest.raises(
        InvalidSetting, match=r"mine must say its unit and costs: give the class Mu"
    ):
        METHODS("mine")(Mute)
    with pytest.raises(InvalidSetting, match="mine must be a class derived from Method"):
        METHODS("mine", reads=())(lambda settings: Attention())  # type: ignore[arg-type, return-value]
    assert "mine" not in METHODS


def test_of_an_unknown_method_no_unit_is_made_up() -> None:
    """A run of a version that did not write the unit, by a method that nobody has registered."""
    old = {"contribution_utility": "loss", "normalization": "paper", "contribution_method": "gone"}
    assert unit(old) == "the unit of contribution.method=gone"
    assert "value by contribution.method=gone" in " ".join(explain(old | {"normalization": ""}))
    assert "nats" not in in_a_sentence("loss", "efficient", "gone")


def test_foreign_attributes_are_taken_as_texts() -> None:
    made = xarray.Dataset(attrs={"contribution_unit": np.arange(2), "contribution_told": 3})
    assert about(made.attrs) == About(Unit("[0 1]"), told="3")


def test_costs_may_be_numbers() -> None:
    assert Costs(evaluations=2).amount("evaluations").of(SIZES) == 2
    assert isinstance(facts.REPORT, Amount) and not Costs().needs_gradients
