"""False predictions (D3), the check by receivers, both against loops, and noised predictions."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import pytest

from tests import claims_reference as judge
from tests.conftest import tiny
from tests.test_attribution import CHANGING
from tests.test_predictions import TOLD
from trip_jax import Adversary, Defence, InvalidSetting
from trip_jax.attribution import Journal, by_predictions, confirmed
from trip_jax.attribution.predictions import first_logits
from trip_jax.learning.evaluation import LOSS
from trip_jax.learning.privacy import NoisyRecords, Privacy
from trip_jax.protocol.adversaries import CLAIMS, FalsePredictions, Honest
from trip_jax.protocol.claims import Said
from trip_jax.protocol.receivers import ByReceivers, TakeAll
from trip_jax.runs.costs import costs
from trip_jax.simulation import Simulation

LIARS, VICTIM, SIZE = (1, 4), 2, 3.0
ARCS = [(0, 1), (1, 2), (2, 0), (4, 1), (1, 4), (1, 5), (0, 3)]
GRAPHS = [nx.complete_graph(6), nx.DiGraph(ARCS)]
"""Of the second, nobody receives clients 3 and 5, and a liar alone receives client 4."""


@pytest.fixture(scope="module")
def federation() -> Simulation:
    """Who liars are, is known; that they lie, `lie` says."""
    return tiny(GRAPHS, contribution=TOLD, adversary=Adversary("d3", clients=LIARS))


def weights_at(federation: Simulation, t: int) -> list[dict[int, float]]:
    here = federation.topology.at(t)
    return [
        {int(k): float(share) for k, share, real in zip(*row, strict=True) if real}
        for row in zip(*map(np.asarray, (here.members, here.shares, here.mask)), strict=True)
    ]


def drawn(federation: Simulation) -> Said:
    """What models say, in numbers that float16 holds."""
    rng, size = np.random.default_rng(0), federation.learner.n_logits
    trained, apart = np.float16(rng.normal(size=(2, 6, size)) * [[[2]], [[0.1]]])
    following = np.float16(trained.mean(axis=0) + apart)
    told = (jnp.asarray(one, jnp.float32) for one in (trained, following, trained))
    return Said(*told)


@pytest.mark.parametrize("collude", [False, True])
@pytest.mark.parametrize("kind", list(CLAIMS))
def test_claims_and_what_receivers_leave_of_them_are_those_of_the_oracle(
    federation: Simulation, kind: str, collude: bool
) -> None:
    data, true = federation.data, drawn(federation)
    labels = np.asarray(data.test_labels)
    right = ((labels[:, None] == np.arange(3)) - 1 / 3).ravel()
    lie, check = FalsePredictions(kind, SIZE, VICTIM, collude), ByReceivers()
    records: judge.Records = [
        (np.asarray(a, float), np.asarray(b, float))
        for a, b in zip(true.trained, true.following, strict=True)
    ]
    lied = {"size": SIZE, "victim": VICTIM}
    changed = 0
    for t in range(2):
        here, weights = federation.schedule.at(jnp.int32(t)), weights_at(federation, t)
        found = lie.say(true, here, federation.learner)
        told = judge.claimed(kind, records, weights, LIARS, right, **lied)
        np.testing.assert_allclose(found.trained, [one for one, _ in told], atol=1e-5)
        np.testing.assert_allclose(found.following, [one for _, one in told], atol=2e-3)
        changed += sum(told[j] is not records[j] for j in range(6))
        kept = np.asarray(check(found, true.trained, here, jnp.zeros(6, bool)))
        for j in range(6):
            heard = [
                judge.testimony(kind, i, j, records, told, LIARS, right, collude=collude, **lied)
                for i in range(6)
                if j in weights[i] and i != j
            ]
            expected = judge.taken(told[j][0], heard)
            if expected is None:
                assert np.isnan(kept[j]).all() and (t, j) in ((1, 3), (1, 5))
            else:
                np.testing.assert_allclose(kept[j], expected, atol=5e-3)
    assert changed == 2 * len(LIARS)


def test_what_counts_in_the_end_is_as_by_the_oracle(federation: Simulation) -> None:
    """Of unreceived models what was before; of next ones the mixture."""
    rng, size = np.random.default_rng(1), 12
    start, mixing = rng.normal(size=size), [weights_at(federation, t) for t in range(2)]
    dense = np.array([[[row.get(k, 0.0) for k in range(6)] for row in one] for one in mixing])
    trained = rng.normal(size=(2, 6, size))
    trained[:, 3] = np.nan
    following = rng.normal(size=trained.shape)
    journal = Journal(
        *(np.zeros(1), np.concatenate([trained, following], axis=-1), dense),
        *(np.zeros((2, 6, 6, 3)), np.ones(6, int), np.ones((2, 6), bool)),
    )
    found = confirmed(journal, start)
    rounds = [[None if np.isnan(row).all() else row for row in after] for after in trained]
    expected = judge.confirmed(start, rounds, mixing)
    np.testing.assert_allclose(
        found, [[np.concatenate(one) for one in of] for of in expected], 1e-4
    )


@pytest.mark.thorough
def test_a_run_with_liars_is_told_from_what_counts() -> None:
    """Models are as without lies; what a majority of honest receivers sees is the truth."""
    honest = tiny(CHANGING, contribution=TOLD)
    plain, lie = honest.run(), Adversary("d3", clients=(1,), claim="praise")
    checked = honest.with_liars(lie, Defence(receivers=True))
    result = checked.run()
    np.testing.assert_array_equal(result.models, plain.models)
    np.testing.assert_array_equal(result.records.kept, plain.records.kept)
    journal = Journal.of(result.records, checked.topology, checked.learner)
    taken = confirmed(journal, first_logits(journal, checked.learner))
    expected = by_predictions(replace(journal, updates=taken), checked.learner).phi[..., LOSS]
    np.testing.assert_array_equal(result.phi, expected.astype(np.float32))
    told, unsent = [], jnp.zeros(6, bool)
    by: Any = replace(checked.rules.contribute, check=TakeAll())
    for t, said in enumerate(np.asarray(plain.records.kept)):
        trained, following = jnp.split(jnp.asarray(said), 2, axis=1)
        here = checked.schedule.at(jnp.int32(t))
        told.append(np.asarray(by.kept_of_round(trained, following, here, checked.learner, unsent)))
    undefended = by.attribute(
        replace(journal, updates=np.stack(told)),
        checked.learner,
        budget=64,
        key=jax.random.key(0),
    )
    assert undefended.phi[..., LOSS].mean(axis=0)[1] > plain.scores[1] + 0.02
    received = int((checked.topology.masks(2).sum(axis=2) - 1).sum())
    more = (
        costs(result)["bytes_sent"]["contributions"] - costs(plain)["bytes_sent"]["contributions"]
    )
    assert more == 64 * received
    evaluated = [costs(one)["coalitions_evaluated"] for one in (result, plain)]
    assert evaluated[0] - evaluated[1] == received


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"adversary": Adversary("d3", clients=(1,))}, "adversary=d3 is about what models say"),
        ({"defence": Defence(receivers=True)}, r"defence\.receivers=true is about what models say"),
    ],
)
def test_lies_and_checks_of_predictions_need_them(settings: Any, message: str) -> None:
    with pytest.raises(InvalidSetting, match=message):
        tiny(**settings)


@pytest.mark.parametrize(
    ("victim", "clients", "message"),
    [
        (1, (1, 4), r"adversary\.victim=1 lies itself"),
        (6, (1, 4), r"adversary\.victim names client 6"),
        (None, tuple(range(6)), "needs a victim, and all clients lie"),
    ],
)
def test_victims_are_honest_clients(victim: Any, clients: Any, message: str) -> None:
    with pytest.raises(InvalidSetting, match=message):
        Adversary("d3", clients=clients, claim="sabotage", victim=victim).aimed(6, 0)
    found = Adversary("d3", clients=(0, 2), claim="sabotage").aimed(6, 0)
    assert found.victim == 1


def test_records_are_clipped_and_noised_once(federation: Simulation) -> None:
    """Other models, and so other data, move a record by two clips at most."""
    here, said, unsent = federation.schedule.at(jnp.int32(0)), drawn(federation), jnp.zeros(6, bool)
    told, given = federation.rules.contribute, (said.trained, said.following, here)

    def noised(clip: float, noise: float) -> np.ndarray:
        learner = replace(federation.learner, mechanism=NoisyRecords(clip, noise))
        return np.asarray(replace(told, lie=Honest()).kept_of_round(*given, learner, unsent), float)

    whole = np.concatenate([said.trained, said.following], axis=1)
    np.testing.assert_allclose(noised(1e4, 1e-8), whole, atol=5e-3)
    short = noised(2.0, 1e-6)
    np.testing.assert_allclose(np.linalg.norm(short, axis=1), 2, rtol=1e-2)
    np.testing.assert_allclose(short, 2 * whole / np.linalg.norm(whole, axis=1)[:, None], atol=2e-3)
    noise = noised(2.0, 3.0) - short
    assert abs(noise.std() / 6 - 1) < 0.05 and abs(np.corrcoef(noise) - np.eye(6)).max() < 0.2


def test_the_guarantee_is_of_the_records_of_all_clients() -> None:
    """Any of them may depend on a client's data, in each round."""
    privacy = Privacy("dp_predictions", clip=10.0, noise=40.0)
    simulation = tiny(CHANGING, contribution=TOLD, privacy=privacy)
    found = simulation._guarantee(2)
    alone = Privacy("dp", noise=40.0).build(12).guarantee(12, privacy.delta)
    assert found == alone and found is not None and found.epsilon < 2
    by_epsilon = replace(privacy, epsilon=found.epsilon, noise=1.0).build(2, 6)
    assert isinstance(by_epsilon, NoisyRecords)
    np.testing.assert_allclose(by_epsilon.noise, 40, rtol=1e-3)


@pytest.mark.parametrize(
    "settings", [{}, {"contribution": TOLD, "defence": Defence(receivers=True)}]
)
def test_noised_records_are_of_predictions_that_nobody_checks(settings: Any) -> None:
    with pytest.raises(InvalidSetting, match="privacy=dp_predictions noises what clients say"):
        tiny(privacy="dp_predictions", **settings)
