"""What a user adds without touching the package, named by a setting or handed over as a rule.

Distributions, families of graphs and weights are in tests/test_extend_data.py.
"""

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import pytest

from tests.conftest import follow, tiny
from trip_jax import Adversary, Contribution, InvalidSetting, decentralised_truth
from trip_jax.learning.evaluation import LOSS
from trip_jax.programs import forget_namesake
from trip_jax.protocol.adversaries import LIES, Honest
from trip_jax.protocol.aggregation import AGGREGATIONS, Rule
from trip_jax.protocol.channels import Channel
from trip_jax.protocol.contributions import METHODS
from trip_jax.protocol.defences import AdoptAll
from trip_jax.protocol.exchange import CHANNELS
from trip_jax.protocol.messages import Messages
from trip_jax.protocol.reports import Reports, Verdict
from trip_jax.protocol.round import Round
from trip_jax.protocol.state import Learned, State
from trip_jax.protocol.weighing import WEIGHINGS, Weighing
from trip_jax.results.result import Result
from trip_jax.settings import LISTENERS
from trip_jax.shapley import ESTIMATORS, SEMIVALUES
from trip_jax.shapley.rows import after_ends
from trip_jax.simulation import Simulation

REGISTRIES = (SEMIVALUES, ESTIMATORS, LIES, AGGREGATIONS, CHANNELS, METHODS, WEIGHINGS)


@pytest.fixture(autouse=True)
def forgotten_afterwards(monkeypatch: pytest.MonkeyPatch, kept_namesakes: None) -> None:
    for registry in REGISTRIES:
        monkeypatch.setattr(registry, "_named", dict(registry._named))


@pytest.fixture(scope="module")
def plain() -> Result:
    """A path of six clients, by the rules of this package alone."""
    return tiny().run()


def learning_of(simulation: Simulation, state: State) -> Learned:
    return simulation.on_its_data(simulation.compile(state)).learn(state)


@pytest.mark.thorough
def test_a_semivalue(plain: Result) -> None:
    @SEMIVALUES("of_the_first")
    def joins_the_empty_coalition(m: int, s: int) -> float:
        return float(m * (s == 0))

    simulation = tiny(contribution=Contribution(semivalue="of_the_first"))
    # A client's coalitions: none, each member alone, and all, which are the next model.
    assert simulation.coalitions.tolist() == [2 * 4 + 4 * 5]
    lcv = simulation.run().records.lcv[0, ..., LOSS]
    assert lcv.any() and not np.allclose(lcv, plain.records.lcv[0, ..., LOSS])


def test_an_object_of_a_user_drops_the_programs_that_may_hold_the_older_of_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One of this package drops none."""
    dropped: list[str] = []
    name = "of_the_last"
    monkeypatch.setattr(jax, "clear_caches", lambda: dropped.append(name))
    LISTENERS.append(forget_namesake)
    SEMIVALUES(name)(SEMIVALUES["shapley"])
    assert not dropped
    for factor in (1, 2):
        SEMIVALUES(name)(lambda m, s, factor=factor: float(factor * (s == m - 1)))
        assert len(dropped) == factor and SEMIVALUES[name](3, 2) == factor


@pytest.mark.thorough
def test_a_name_goes_to_the_newer_object() -> None:
    """Also in a notebook whose cell is run once more: nothing compiled remembers the older one."""
    LISTENERS.append(forget_namesake)
    found = []
    for factor in (1, 2):
        SEMIVALUES("of_the_last")(lambda m, s, factor=factor: float(factor * (s == m - 1)))
        simulation = tiny(contribution=Contribution("loss", semivalue="of_the_last"))
        found.append(simulation.run().phi)
    np.testing.assert_allclose(found[1], 2 * found[0], rtol=1e-5)


def test_own_rules_may_change_between_federations() -> None:
    """Neither needs to show in what compares equal: each federation has programs of its own."""
    most = [1.0]

    class Cut(AdoptAll):
        def __init__(self, most: float):
            self.most = most

        def __call__(self, reports: Reports, n: int) -> Verdict:
            verdict = super().__call__(reports, n)
            return replace(verdict, adopted=jnp.minimum(verdict.adopted, self.most * most[0]))

    assert Cut(1) == Cut(2)
    found = []
    for attribute, in_module in ((0.05, 1), (0.01, 1), (0.01, 0.5)):
        most[0] = in_module
        simulation = tiny(contribution="weights", rules={"audit": Cut(attribute)})
        found.append(simulation.run().records.adopted.max())
    np.testing.assert_allclose(found, [0.05, 0.01, 0.005], rtol=1e-6)


def test_an_adversary() -> None:
    class Flatterer(Honest):
        """Doubles what it reports of everyone."""

        def report(self, lcv: jax.Array, this_round: Round) -> jax.Array:
            return jnp.where(this_round.liars.mask[:, None], 2 * lcv, lcv)

    LIES("flatterer", reads=())(lambda settings, v_threshold, divided: Flatterer())
    records = tiny(adversary=Adversary("flatterer", clients=(1, 4))).run().records
    lies = [1, 4]
    np.testing.assert_array_equal(records.reported[:, lies], 2 * records.lcv[..., 0][:, lies])
    np.testing.assert_array_equal(records.reported[:, 0], records.lcv[:, 0, :, 0])


@pytest.mark.thorough
def test_a_defence(plain: Result) -> None:
    @dataclass(frozen=True)
    class Ceiling:
        """Cuts what is reported off, and flags who reported it."""

        most: float

        def __call__(self, reports: Reports, n: int) -> Verdict:
            high = reports.real & (reports.lcv > self.most)
            flagged = jnp.zeros(n, bool).at[reports.client].max(high)
            return replace(
                AdoptAll()(reports, n),
                adopted=jnp.minimum(reports.lcv, self.most),
                flagged=flagged,
            )

    cut, told = tiny(rules={"audit": Ceiling(0.05)}).run(), plain.records.reported
    np.testing.assert_array_equal(cut.records.adopted, np.minimum(told, 0.05))
    np.testing.assert_array_equal(cut.records.flagged, (told > 0.05).any(axis=2))


def test_a_rule_that_does_not_exist_is_told() -> None:
    with pytest.raises(InvalidSetting, match=r"no rule 'audits': there are weigh, .*audit"):
        tiny(rules={"audits": AdoptAll()})


@dataclass(frozen=True)
class MiddleMean(Rule):
    """The mean of each parameter without its largest and smallest value; counts, not weights."""

    def __call__(self, weights: jax.Array, models: jax.Array) -> jax.Array:
        present = (weights > 1e-6)[..., None]
        low, high = (jnp.where(present, models, end).sort(axis=-2) for end in (jnp.inf, -jnp.inf))
        count = present.sum(axis=-2)
        total = jnp.where(present, models, 0).sum(axis=-2)
        trimmed = (total - low[..., 0, :] - high[..., -1, :]) / jnp.maximum(count - 2, 1)
        return jnp.where(count > 2, trimmed, total / count)

    def traced(self, nearby: Any) -> jax.Array:
        return nearby.mask.astype(jnp.float32)


def test_an_aggregation_rule(plain: Result) -> None:
    AGGREGATIONS("middle_mean", reads=())(lambda settings: MiddleMean())
    simulation = tiny(aggregation="middle_mean")
    state = simulation.start()
    learned = learning_of(simulation, state)
    nearby = simulation.topology.at(0)
    for i in range(6):
        members = np.asarray(nearby.members[i])[np.asarray(nearby.mask[i])]
        expected = np.sort(np.asarray(learned.trained)[members], axis=0)
        expected = expected[1:-1] if len(members) > 2 else expected
        np.testing.assert_allclose(learned.models[i], expected.mean(axis=0), atol=1e-6)
    result = simulation.run()
    assert np.isfinite(result.phi).all() and not np.allclose(result.phi, plain.phi)


def test_a_lossy_channel(plain: Result) -> None:
    @dataclass(frozen=True)
    class Rounded(Channel):
        """Models are sent as multiples of 1/32."""

        def __call__(
            self, sent: Messages, this_round: Round, memory: None, learner: Any
        ) -> tuple[Messages, None]:
            before, trained = (jnp.round(32 * x) / 32 for x in (sent.before, sent.trained))
            everyone = jnp.arange(this_round.n_clients)
            return replace(sent, before=before, trained=trained, altered=everyone), memory

    CHANNELS("rounded", reads=())(lambda settings: Rounded())
    simulation = tiny(channel="rounded")
    state = simulation.start()
    learned = learning_of(simulation, state)
    nearby, trained = simulation.topology.at(0), np.asarray(learned.trained)
    received = np.round(32 * trained) / 32
    assert np.abs(received - trained).max() > 0.01
    models = [trained[0], received[1]]  # its own arrives as it is
    expected = np.asarray(nearby.shares[0])[:2] @ np.stack(models)
    np.testing.assert_allclose(learned.models[0], expected, atol=1e-6)
    assert not np.allclose(simulation.run().phi, plain.phi)
    with pytest.raises(InvalidSetting, match="set channel=none"):
        decentralised_truth(simulation)


@pytest.mark.thorough
def test_an_estimator_of_shapley_values() -> None:
    @dataclass(frozen=True)
    class Crude:
        """Random coalitions; a player's value is what those with it have above those without."""

        def minimum(self, m: int) -> int:
            return 8

        def draw(self, key: Any, m: Any, *, rows: int, slots: int) -> jax.Array:
            inside = jax.random.bernoulli(key, 0.5, (rows - 2, slots)) & (jnp.arange(slots) < m)
            return after_ends(inside, m)

        def estimate(self, masks: Any, utilities: Any, m: Any) -> tuple[jax.Array, jax.Array]:
            inside, outside = masks.astype(float), (~masks & (jnp.arange(len(masks[0])) < m)) * 1.0
            means = (x.T @ utilities / x.sum(axis=0)[:, None] for x in (inside, outside))
            values = jnp.nan_to_num(next(means) - next(means))
            return values, jnp.zeros_like(values)

    ESTIMATORS("crude")(Crude())
    star = nx.star_graph(5)
    crude = tiny(star, contribution=Contribution(estimator="crude", budget=24)).run()
    exact = tiny(star).run()
    np.testing.assert_array_equal(crude.models, exact.models)
    hub, leaves = (result.records.lcv[..., LOSS] for result in (crude, exact))
    assert np.isfinite(hub[:, 0]).all() and not np.allclose(hub[:, 0], leaves[:, 0])
    np.testing.assert_allclose(hub[:, 1:], leaves[:, 1:], atol=1e-6)


def test_a_contribution_method(plain: Result) -> None:
    from examples.own_method import GainByWeight  # registers it, which the fixture undoes

    METHODS("gain_by_weight")(GainByWeight)
    result = tiny(contribution=Contribution(method="gain_by_weight")).run()
    np.testing.assert_array_equal(result.models, plain.models)
    np.testing.assert_allclose(result.records.utility, plain.records.utility, rtol=1e-5)
    gains = result.records.utility[1] - result.records.utility[0]
    np.testing.assert_allclose(result.records.lcv[1].sum(axis=1), gains, atol=1e-5)


def test_weights_that_follow_contributions() -> None:
    @dataclass(frozen=True)
    class Trusting(Weighing):
        """Weights grow with what a member has contributed so far, from the second round on."""

        def __call__(self, this_round: Round, state: State) -> Round:
            nearby = this_round.neighbourhoods
            rows = jnp.arange(this_round.n_clients)[:, None]
            credit = jnp.maximum(state.phi[rows, nearby.members], 0.01)
            weights = jnp.where(
                nearby.mask & (this_round.t > 0), nearby.weights * credit, nearby.weights
            )
            return replace(this_round, neighbourhoods=replace(nearby, weights=weights))

    WEIGHINGS("trusting", reads=())(lambda settings: Trusting())
    simulation, fixed = tiny(trust="trusting"), tiny()
    states, same = follow(simulation).states, follow(fixed).states
    np.testing.assert_array_equal(states[1].models, same[1].models)
    nearby, phi = simulation.topology.at(0), np.asarray(states[1].phi)
    i, members = 2, np.asarray(nearby.members[2])
    weights = np.asarray(nearby.weights[i]) * np.maximum(phi[i, members], 0.01)
    learned = learning_of(simulation, states[1])
    expected = weights / weights.sum() @ np.asarray(learned.trained)[members]
    np.testing.assert_allclose(states[2].models[i], expected, atol=1e-6)
    assert not np.allclose(states[2].models, same[2].models)
    with pytest.raises(InvalidSetting, match="trust=none"):
        decentralised_truth(simulation)
