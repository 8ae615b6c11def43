"""Models with statistics and random draws, and parts of models that stay a client's own."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from flax import nnx

import trip_jax as tj
from tests import reference as ref
from tests.conftest import (
    Hearing,
    away_of,
    follow,
    oracle_inputs,
    oracle_rules,
    rarely,
    refusal,
    tiny,
    tiny_data,
)
from tests.stateful import centred
from tests.test_against_oracle import check
from tests.test_resume import replace_lists
from trip_jax.learning.evaluation import LOSS
from trip_jax.learning.flat_model import FlatModel

TRAINING = tj.Training(rounds=2, local_epochs=2, batch_size=4, learning_rate=0.2, momentum=0.5)
LOSSES = tj.Contribution("loss")
PRESENT = np.array([[True] * 3, [True, False, True]])
SHARED = ("batch_size", "learning_rate", "momentum", "local", "own")
"""What the oracle's executions are told as its run is."""

DATA = tiny_data((6, 7, 5), n_test=10)


def of(settings: dict[str, Any], model: Any = None, **more: Any) -> tj.Simulation:
    training = replace(TRAINING, **settings)
    return tiny(data=DATA, model=model, training=training, **{"contribution": LOSSES} | more)


@pytest.mark.parametrize(
    ("settings", "model"),
    [
        ({"own": "Dense_1", "statistics": "own"}, centred()),
        rarely({"own": "Dense_1/kernel|Dense_1/bias"}, None),
        rarely({"statistics": "own"}, centred()),
        rarely({}, centred()),
        rarely({"own": "Dense_0"}, centred()),
    ],
)
def test_rounds_are_those_of_loops(settings: dict[str, Any], model: Any) -> None:
    """What stays a client's own is neither sent nor mixed, and of training in the coalitions that
    the client belongs to."""
    simulation = of(settings, model, present=PRESENT)
    check(simulation, follow(simulation), "loss")


class Linen(nn.Module):
    """A network with BatchNorm and Dropout."""

    @nn.compact
    def __call__(self, x: Any, train: bool) -> Any:
        x = nn.BatchNorm(use_running_average=not train, momentum=0.75)(x.reshape(len(x), -1))
        x = nn.Dropout(0.25, deterministic=not train, rng_collection="noise")(x)
        return nn.Dense(3, name="head")(x)


class Graphical(nnx.Module):
    """The same in NNX."""

    def __init__(self, rngs: nnx.Rngs):
        self.norm = nnx.BatchNorm(9, momentum=0.75, rngs=rngs)
        self.dropout = nnx.Dropout(0.25, rngs=rngs)
        self.head = nnx.Linear(9, 3, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        return self.head(self.dropout(self.norm(x.reshape(len(x), -1))))


OURS = tj.ModelConfig("norm_mlp", hidden=(5,), dropout=0.2)

MODULES = {"linen": tj.from_flax(Linen()), "nnx": tj.from_flax(Graphical)}


@pytest.mark.parametrize("kind", MODULES)
def test_modules_of_flax_draw_and_move_statistics_in_training_alone(kind: str) -> None:
    model = MODULES[kind]
    flat = FlatModel.begun(model, jax.random.key(0), (3, 3))
    params = flat.unravel(flat.theta)
    trained, statistics = model.divided(params)
    x = jnp.asarray(np.random.default_rng(0).normal(1, 2, (8, 3, 3)), jnp.float32)
    keys = jax.random.split(jax.random.key(1), 2)

    @jax.jit
    def look(key: Any) -> Any:
        assert model.train
        logits, after = model.train(params, x, key)
        return logits, after, model.apply(params, x)

    (one, after, elsewhere), (other, _, _) = (look(key) for key in keys)
    assert np.abs(one - other).max() > 1e-2
    told = {
        jax.tree_util.keystr(path).split("'")[-2]: np.asarray(leaf)
        for path, leaf in jax.tree_util.tree_leaves_with_path(model.divided(after)[1])
    }
    rows = np.asarray(x).reshape(8, 9)
    np.testing.assert_allclose(told["mean"], 0.25 * rows.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(told["var"], 0.75 + 0.25 * rows.var(axis=0), rtol=1e-5)
    kernel = next(leaf for leaf in jax.tree.leaves(trained) if leaf.shape == (9, 3))
    np.testing.assert_allclose(elsewhere, rows / np.sqrt(1 + 1e-5) @ kernel, atol=1e-5)
    lied = flat.params(-flat.theta)  # as a liar may send it
    assert min(float(leaf.min()) for leaf in jax.tree.leaves(model.divided(lied)[1])) == 0
    assert len(jax.tree.leaves(statistics)) == 2


def test_what_stays_is_not_sent() -> None:
    of_head = of({"own": "head"}, MODULES["linen"]).learner.model
    both = of({"own": "head|Norm", "statistics": "own"}, MODULES["nnx"])
    assert of_head.n_own == 9 * 3 + 3 and of_head.n_sent == 4 * 9
    assert both.learner.model.n_sent == 2 * 9  # norm is in small letters there
    assert both.rules.channel.message_bytes(both.learner.model) == (4 * 18, 4 * 18)
    flat = of_head.drawn(jax.random.key(0))
    assert jax.tree.all(
        jax.tree.map(
            np.array_equal,
            flat.unravel(flat.theta),
            flat.unravel(flat.ravel(flat.unravel(flat.theta))),
        )
    )


REFUSED = {
    "training.own=heads": "training.own=heads names no parameter: there are Dense_0/bias, Dense_0",
    "training.own=Dense": "names all parameters, so that nothing is exchanged",
    "training.own=Dense_[": "is no regular expression",
    "training.statistics=own": "has no effect, as the model has no statistics",
    "training.statistics=owned": "training.statistics must be one of mixed, own",
    "training.own=Dense_1 defence=c1": "defence.c1 evaluates the models of others",
    "training.own=Dense_1 contribution.method=surrogate": "surrogate looks at whole models",
    "training.own=Dense_1 contribution.method=predictions": "predictions looks at whole models",
    "training.own=Dense_1 contribution.method=dice contribution.utility=loss": "dice looks at",
    "training.own=Dense_1 contribution.method=shapfed": "shapfed looks at whole models",
    "training.own=Dense_1 adversary=d1 adversary.fake=evasive": "evasive evaluates models as",
}


USUAL = "training.own=heads", "training.own=Dense_1 defence=c1"


@pytest.mark.parametrize(
    "settings",
    [one if one in USUAL else rarely(one) for one in REFUSED],
)
def test_refusals(settings: str) -> None:
    assert REFUSED[settings] in refusal(*settings.split())


def test_what_mixes_whole_models_is_refused() -> None:
    tracks: dict[str, Any] = {"aggregation": "gradient_tracking", "weights": "metropolis"}
    assert of({}, **tracks).rules.aggregate.corrects
    with pytest.raises(tj.InvalidSetting, match="choose a model without statistics"):
        of({}, MODULES["linen"], **tracks)
    simulation = of({"own": "Dense_1"})
    with pytest.raises(
        tj.InvalidSetting, match=r"server has whole models.* leave out training\.own"
    ):
        tj.centralised_truth(simulation)
    with pytest.raises(tj.InvalidSetting, match="looks at whole models of others"):
        simulation.keeping_updates()


OTHERS: list[dict[str, Any]] = [
    {"channel": tj.ChannelConfig("top_k", share=0.5, learning=True), "aggregation": "median"},
    {"adversary": tj.Adversary("d1", clients=(1,), fake="sign_flipped")},
    {"adversary": "sign_flips", "privacy": tj.Privacy("dp", clip=1.0, noise=0.1)},
    {"trust": "own", "contribution": tj.Contribution("loss", method="gain")},
    {"channel": "low_rank", "contribution": tj.Contribution("loss", method="cgsv")},
    {"drop": 0.2, "contribution": tj.Contribution("loss", method="trip_and_weights")},
]


@pytest.mark.thorough
@pytest.mark.parametrize("others", OTHERS)
@pytest.mark.parametrize("settings", [{"own": "head", "statistics": "own"}, {}])
def test_rules_of_the_exchange_take_parts_of_models(
    others: dict[str, Any], settings: dict[str, Any]
) -> None:
    """Runs end, go on from their middle bit for bit, and executions of all repeat them."""
    simulation = of(settings | {"optimizer_state": "kept"}, MODULES["linen"], **others)
    middle: list[Any] = []
    whole = simulation.run(Hearing(on_round=lambda past: middle.append(replace_lists(past))))
    again = simulation.run(past=middle[0])
    np.testing.assert_array_equal(again.models, whole.models)
    np.testing.assert_array_equal(again.phi, whole.phi)
    assert np.isfinite(whole.phi).all() and np.isfinite(whole.models).all()


@pytest.mark.thorough
@pytest.mark.parametrize("settings", [{"own": "Dense_1", "statistics": "own"}, {}])
def test_executions_repeat_a_run(settings: dict[str, Any]) -> None:
    simulation = of(settings, OURS)
    truth = tj.decentralised_truth(simulation)
    everyone = truth.utilities[truth.inside.all(axis=1)][0]
    np.testing.assert_allclose(everyone, simulation.run().records.utility[-1], atol=1e-6)


@pytest.mark.thorough
def test_the_truth_is_that_of_loops() -> None:
    simulation = of({"own": "Dense_1", "statistics": "own"}, centred(), present=PRESENT)
    inputs, rules = oracle_inputs(simulation), oracle_rules(simulation, None)  # type: ignore[arg-type]
    expected = ref.shapley_by_retraining(
        inputs.theta,
        inputs.clients,
        inputs.test,
        inputs.neighbourhoods,
        inputs.orders,
        utility="loss",
        away=away_of(simulation),
        **{name: rules[name] for name in SHARED},
    )
    truth = tj.decentralised_truth(simulation)
    np.testing.assert_allclose(truth.values[..., LOSS], expected, atol=2e-5)
