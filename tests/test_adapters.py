"""Adapters: what they compute, what is trained of them, and what is held once."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import pytest
from flax import linen as nn
from flax import nnx

import trip_jax as tj
from tests import reference as ref
from tests.conftest import Hearing, follow, oracle_inputs, rarely, tiny, tiny_data
from tests.test_resume import assert_equal, replace_lists
from trip_jax.learning.flat_model import FlatModel
from trip_jax.learning.memory import bytes_of
from trip_jax.learning.models import mlp
from trip_jax.protocol.contributions import METHODS

KEY = jax.random.key(0)
IMAGES = jnp.asarray(np.random.default_rng(0).random((4, 8, 8, 1), np.float32))


class Attentive(nn.Module):
    """Kernels of two axes and of three."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        x = nn.MultiHeadDotProductAttention(2)(nn.Dense(6)(x[..., 0]))
        return nn.Dense(3)(x.mean(axis=1))


class Graphical(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.hidden, self.logits = nnx.Linear(64, 4, rngs=rngs), nnx.Linear(4, 3, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.logits(nnx.relu(self.hidden(x.reshape(len(x), -1))))


def graphical(rngs: nnx.Rngs) -> Graphical:
    return Graphical(rngs)


def drawn(model: tj.Model) -> FlatModel:
    return FlatModel.begun(model, KEY, IMAGES.shape[1:])


@pytest.mark.parametrize(
    ("base", "pattern", "numbers"),
    [
        (mlp(3, (6,)), r"kernel$", 2 * (64 + 6) + 2 * (6 + 3)),
        rarely(tj.cnn(3, (2, 3), 5), "conv1", 2 * (9 + 6)),
        (tj.from_flax(Attentive()), "query|out", 2 * 2 * (6 + 6)),
        (tj.from_flax(graphical), "hidden", 2 * (64 + 4)),
        rarely(
            tj.Model(lambda key, x: {"w": jnp.ones((64, 3))}, lambda p, x: _flat(x) @ p["w"]),
            "w",
            134,
        ),
    ],
)
def test_kernels_have_a_product_of_low_rank_added(
    base: tj.Model, pattern: str, numbers: int
) -> None:
    plain, adapted = drawn(base), drawn(tj.lora(base, 2, pattern, alpha=6))
    assert adapted.theta.size == numbers < plain.theta.size
    before = plain.apply(plain.theta, IMAGES)
    np.testing.assert_allclose(adapted.apply(adapted.theta, IMAGES), before, atol=1e-6)
    row = adapted.theta + 0.1
    trained, found = adapted.unravel(row)["adapters"], dict(_named(adapted.frozen))
    for path, pair in trained.items():
        added = 3 * np.asarray(pair["A"], float) @ np.asarray(pair["B"], float)
        found[path] = np.asarray(found[path]) + added.reshape(found[path].shape).astype(np.float32)
    leaves = map(jnp.asarray, found.values())
    whole = jax.tree.unflatten(jax.tree.structure(adapted.frozen), leaves)
    expected = base.apply(whole, IMAGES)
    assert abs(expected - before).max() > 0.01
    np.testing.assert_allclose(adapted.apply(row, IMAGES), expected, rtol=1e-4, atol=1e-5)
    if base.predict is not None:
        np.testing.assert_allclose(adapted.predict(row, IMAGES), expected, rtol=1e-4, atol=1e-5)


def _flat(x: jax.Array) -> jax.Array:
    return x.reshape(len(x), -1)


def _named(tree: Any) -> list[tuple[str, Any]]:
    """Leaves by the paths that adapters are called by."""
    paths = jax.tree_util.tree_leaves_with_path(tree)
    keys = [jax.tree_util.keystr(path, simple=True, separator="/") for path, _ in paths]
    return [(key.removesuffix("/value"), leaf) for key, (_, leaf) in zip(keys, paths, strict=True)]


ADAPTED = tj.lora(mlp(3, (6,)), 2, "Dense_0", head="Dense_1", dtype="bfloat16")
TRAINING = tj.Training(rounds=2, local_epochs=2, batch_size=4, learning_rate=0.2, momentum=0.5)
ONE_ROUND = tj.Training(rounds=1, local_epochs=2, batch_size=4, learning_rate=0.2, momentum=0)


def test_a_round_is_that_of_loops_over_examples() -> None:
    """The gradient of A is that of A B times B^T, and that of B is A^T times it."""
    simulation = tiny(model=ADAPTED, training=ONE_ROUND)
    start, model = follow(simulation), simulation.learner.model
    inputs, rows = _oracle(simulation, model), []
    for client, orders in zip(inputs.clients, inputs.orders[0], strict=True):
        pair, head = _loops(model)
        (kernel, bias), _ = inputs.theta
        for order in orders:
            for first in range(0, len(order), 4):
                batch = order[first : first + 4]
                theta = [(kernel + pair[0] @ pair[1], bias), head]
                examples = client[0][batch], client[1][batch]
                _, ((dense, _), of_head) = ref.mlp_loss_and_gradient(theta, *examples)
                slopes = dense @ pair[1].T, pair[0].T @ dense
                pair = [one - 0.2 * slope for one, slope in zip(pair, slopes, strict=True)]
                head = tuple(one - 0.2 * s for one, s in zip(head, of_head, strict=True))
        rows.append(np.concatenate([*map(np.ravel, pair), head[1], head[0].ravel()]))
    weights = np.array(
        [[here.get(j, 0) for j in range(6)] for here in inputs.neighbourhoods[0]], float
    )
    mixed = weights / weights.sum(axis=1, keepdims=True) @ np.array(rows)
    np.testing.assert_allclose(start.states[-1].models, mixed, rtol=1e-4, atol=1e-5)


def _loops(model: FlatModel) -> tuple[list[np.ndarray], Any]:
    """A and B, and the head's kernel and bias, with which all begin."""
    trained = jax.tree.map(lambda leaf: np.asarray(leaf, float), model.unravel(model.theta))
    pair = trained["adapters"]["params/Dense_0/kernel"]
    head = trained["head"]
    return [pair["A"], pair["B"]], (head["params/Dense_1/kernel"], head["params/Dense_1/bias"])


def _oracle(simulation: tj.Simulation, model: FlatModel) -> Any:
    """The oracle's inputs, whose model is the base model as it is held."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.conftest.layers", lambda *_: None)
        inputs = oracle_inputs(simulation)
    dense = model.frozen["params"]
    inputs.theta = [
        (np.asarray(dense[name]["kernel"], float), np.asarray(dense[name]["bias"], float))
        for name in sorted(dense)
    ]
    return inputs


def test_frozen_parameters_are_held_in_the_type_that_is_asked_for() -> None:
    simulation = tiny(model=ADAPTED)
    frozen = dict(_named(simulation.learner.model.frozen))
    assert frozen["params/Dense_0/kernel"].dtype == jnp.bfloat16
    assert frozen["params/Dense_1/kernel"].dtype == jnp.float32  # from which the head starts
    plain = tiny(model=mlp(3, (6,)))
    start = [np.asarray(one.start().utility)[0] for one in (simulation, plain)]
    np.testing.assert_allclose(*start, atol=0.02)
    one, other = (dict(_named(it.unravel(it.theta))) for it in _both(simulation, plain))
    np.testing.assert_array_equal(one["head/params/Dense_1/kernel"], other["params/Dense_1/kernel"])


def _both(*simulations: tj.Simulation) -> list[FlatModel]:
    return [one.learner.model for one in simulations]


def test_frozen_parameters_are_arguments_of_programs_and_shared_by_them() -> None:
    base = mlp(3, (6,))
    trees = [base.init(jax.random.key(k), jnp.zeros((1, 3, 3, 1))) for k in range(2)]
    one, other = (
        tiny(model=tj.lora(base, 2, params=jax.tree.map(np.asarray, tree))) for tree in trees
    )
    assert one.learner.model.model == other.learner.model.model
    text = jax.jit(type(one.learner).evaluate).lower(one.learner, one.start().models).as_text()
    held = jax.tree.leaves(one.learner.model.frozen)
    assert all(f"tensor<{'x'.join(map(str, leaf.shape))}xf32>" in text for leaf in held)
    assert not any(f"constant dense<{'[' * leaf.ndim}" in text for leaf in held if leaf.ndim > 1)
    assert not np.array_equal(one.start().utility, other.start().utility)


def test_frozen_parameters_are_planned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many clients there are; as on an accelerator, where programs are all there is."""
    monkeypatch.setattr("trip_jax.learning.memory._on_cpu", lambda _: False)
    wide = tj.lora(mlp(3, (20_000,)), 1, "Dense_1")
    held = 4 * (20_000 * 13 + 3)
    simulation = tiny(data=tiny_data(n_test=4), model=wide, training=ONE_ROUND)
    assert bytes_of(simulation.learner.model.frozen) == held
    planned = simulation.plan()[1]
    row = 4 * simulation.learner.model.theta.size
    assert planned and held + 6 * row < planned.rounds < 6 * held


@pytest.mark.parametrize("settings", [rarely({}), rarely({"shard_models": True})])
def test_several_devices_give_the_same(settings: dict[str, Any]) -> None:
    one, two = (
        tiny(model=ADAPTED, training=ONE_ROUND, devices=jax.devices()[:k], **settings).run()
        for k in (1, 2)
    )
    np.testing.assert_allclose(one.models, two.models, atol=1e-5)
    np.testing.assert_allclose(one.phi, two.phi, atol=0.03)  # one of 40 examples


LIES = tj.Adversary("d1d2", clients=(1, 4))
OTHERS: list[Any] = [
    {"adversary": LIES, "defence": "both"},
    rarely({"adversary": tj.Adversary("d2", clients=(1,)), "defence": "c2"}),
    rarely({"adversary": "sign_flips", "aggregation": "median"}),
    rarely({"adversary": "label_flips", "aggregation": "krum"}),
    rarely({"channel": tj.ChannelConfig("top_k", share=0.5, learning=True)}),
    rarely({"channel": "low_rank", "privacy": tj.Privacy("dp", clip=1.0, noise=0.1)}),
    rarely({"trust": "own", "drop": 0.2}),
    rarely({"aggregation": "gradient_tracking", "contribution": "trip"}),
    rarely({"training": replace(TRAINING, optimizer="adam", optimizer_state="kept")}),
]


@pytest.mark.parametrize("others", OTHERS)
def test_adapters_go_with_liars_defences_and_rules_of_the_exchange(others: dict[str, Any]) -> None:
    """A run goes on from its middle bit for bit."""
    simulation = tiny(nx.complete_graph(6), model=ADAPTED, **{"training": TRAINING} | others)
    middle: list[Any] = []
    whole = simulation.run(Hearing(on_round=lambda past: middle.append(replace_lists(past))))
    assert_equal(simulation.run(past=middle[0]), whole)
    assert np.isfinite(whole.phi).all() and np.isfinite(whole.models).all()


@pytest.mark.thorough
def test_a_liar_with_adapters_gains_and_the_defence_takes_it_away() -> None:
    """A liar who says twice its gain of itself stands higher, and by C2 where it stood."""
    lie = tj.Adversary("d2", clients=(1,))
    honest, lying, defended = (
        tiny(nx.complete_graph(6), model=ADAPTED, training=TRAINING, **given).run().phi.mean(axis=0)
        for given in ({}, {"adversary": lie}, {"adversary": lie, "defence": "c2"})
    )
    assert lying[1] > honest[1]
    assert abs(defended[1] - honest[1]) < 0.5 * (lying[1] - honest[1])


@pytest.mark.thorough
@pytest.mark.parametrize("method", sorted(METHODS))
def test_every_method_tells_contributions_or_says_why_not(method: str) -> None:
    told = tj.Contribution(method=method, utility="loss")
    try:
        result = tiny(model=ADAPTED, contribution=told).run()
    except tj.InvalidSetting as error:
        assert method == "shapfed" and "last layers" in str(error)
    else:
        assert np.isfinite(result.scores).all() and result.message_bytes[1] == 4 * 51


@pytest.mark.thorough
def test_the_truth_is_that_of_executions_with_adapters() -> None:
    simulation = tiny(model=ADAPTED, training=ONE_ROUND)
    truth = tj.decentralised_truth(simulation)
    final = np.asarray(simulation.run().records.utility)[-1]
    np.testing.assert_allclose(truth.values.sum(axis=1), final - truth.utilities[0], atol=1e-4)
    assert simulation.learner.model.theta.size == layers_of(ADAPTED) == 51


def layers_of(model: tj.Model) -> int:
    return FlatModel.begun(model, KEY, (3, 3, 1)).theta.size


WRONG = jax.tree.map(
    np.zeros, {"params": {"Dense_0": {"kernel": (9, 6)}}}, is_leaf=lambda x: isinstance(x, tuple)
)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"rank": 0}, "rank must be at least 1"),
        ({"pattern": "("}, r"pattern='\(' is no regular expression"),
        ({"pattern": "query"}, r"pattern='query' is found in the path of no kernel; paths are par"),
        ({"pattern": "bias"}, "no kernel"),
        ({"head": "haed"}, "head='haed' is found in the path of no parameter"),
        ({"pattern": None}, "something to train"),
        ({"dtype": "int8"}, "floating-point numbers, such as bfloat16"),
        ({"alpha": 0}, "alpha must be a number above 0"),
        ({"params": WRONG}, "params/Dense_0/bias, params/Dense_1/bias, params/Dense_1/kernel are"),
    ],
)
def test_adapters_that_cannot_be_are_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(tj.InvalidSetting, match=words) as caught:
        tiny(model=tj.lora(mlp(3, (6,)), **given))
    assert "\n" not in str(caught.value)


def test_a_model_has_no_frozen_parameters_twice_and_no_split_beside_them() -> None:
    with pytest.raises(tj.InvalidSetting, match="no frozen parameters yet"):
        tj.lora(ADAPTED)
    with pytest.raises(tj.InvalidSetting, match=r"Model\.frozen must hold arrays"):
        tiny(model=tj.Model(lambda key, x, w: w, lambda p, x, w: x, frozen={"w": "text"}))
    base = mlp(3, (6,))
    with pytest.raises(tj.InvalidSetting, match="without frozen parameters"):
        tj.Model(base.init, base.apply, split=base.split, frozen=np.ones(3))


def test_a_ready_made_network_has_adapters_for_as_many_classes_as_there_are() -> None:
    simulation = tiny(model=tj.lora(tj.mlp(hidden=(6,)), 1))
    assert simulation.learner.model.theta.size == (9 + 6) + (6 + 3)


def test_a_users_own_function_may_have_frozen_parameters() -> None:
    """Such as random features, drawn once."""

    def features(key: jax.Array, x: jax.Array) -> jax.Array:
        return jax.random.normal(key, (9, 5))

    model = tj.Model(
        lambda key, x, frozen: jnp.zeros((frozen.shape[1], 3)),
        lambda w, x, frozen: jnp.tanh(_flat(x) @ frozen) @ w,
        frozen=features,
    )
    simulation = tiny(model=model)
    held, images = simulation.learner.model, simulation.data.test_images
    w = jnp.arange(15.0)
    expected = np.tanh(_flat(images) @ held.frozen) @ w.reshape(5, 3)
    assert held.frozen.shape == (9, 5) and held.theta.size == 15
    np.testing.assert_allclose(held.apply(w, images), expected, rtol=1e-5)
