"""What enters through Python: types, data of any kind, models, graphs and reports."""

from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import networkx as nx
import numpy as np
import pytest
from flax import linen as nn
from flax import nnx
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import trip_jax as tj
from tests.conftest import tiny, tiny_data
from trip_jax import InvalidSetting
from trip_jax.config import Config
from trip_jax.runs.launch import run
from trip_jax.simulation.beginning import evaluate

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(60, 5)), RNG.integers(0, 3, 60)
ONE_ROUND = tj.Training(rounds=1, batch_size=8, learning_rate=0.1)


def federation(x: Any, y: Any = Y, distribution: Any = "iid", n: Any = 3) -> tj.Partition:
    return tj.distribute(tj.Dataset(x, y, x[:20], y[:20], 3), n, distribution)


def simulation(data: Any = None, model: Any = None, **settings: Any) -> tj.Simulation:
    """Three clients, each linked to both others."""
    data = federation(X).data if data is None else data
    graph = tj.topology.build(nx.complete_graph(3), np.ones(3))
    settings = {"topology": graph, "training": ONE_ROUND} | settings
    return tj.Simulation(tj.mlp(3, (4,)) if model is None else model, data, **settings)


@pytest.fixture(scope="module")
def result() -> tj.Result:
    """Of a run with features as its examples."""
    return simulation().run()


def refused(words: str, attempt: Callable[[], object]) -> None:
    with pytest.raises(InvalidSetting, match=words) as caught:
        attempt()
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 350


GROUPS = {
    "training": tj.Training,
    "contribution": tj.Contribution,
    "adversary": tj.Adversary,
    "defence": tj.Defence,
    "distribution": tj.Distribution,
    "dataset": tj.DatasetConfig,
    "model": tj.ModelConfig,
    "topology": tj.TopologyConfig,
}
OF_NO_SETTING = (2.5j, b"x", {}, object(), [[1]], np.zeros(2), Path)


@given(group=st.sampled_from(sorted(GROUPS)), which=st.integers(0, 50), data=st.data())
def test_a_setting_of_another_type_is_refused_by_name(
    group: str, which: int, data: st.DataObject
) -> None:
    kind = GROUPS[group]
    field = fields(kind)[which % len(fields(kind))]
    default = field.default
    wrong: list[Any] = list(OF_NO_SETTING)
    if isinstance(default, bool):
        wrong += [1, "true", None]
    elif isinstance(default, int):
        wrong += [2.5, 3.0, "3", None, True, np.float32(2), 10**30 + 0.5]
    elif isinstance(default, float):
        wrong += ["0.1", None, True, 10**400]
    if "None" in str(field.type):
        wrong = [one for one in wrong if one is not None]
    value = data.draw(st.sampled_from(wrong))
    if isinstance(default, tuple) and isinstance(value, np.ndarray):
        return
    refused(rf"^{group}\.{field.name} must be ", lambda: kind(**{field.name: value}))


def test_liars_and_thresholds_without_effect_are_refused() -> None:
    with pytest.raises(InvalidSetting, match=r"nobody does with adversary\.kind=none"):
        tiny(adversary=tj.Adversary(clients=(1, 2)))
    with pytest.raises(InvalidSetting, match=r"no effect with defence\.c2=false"):
        tiny(defence=tj.Defence(c1=True, penalty=0.5))
    usual = tiny().defence  # which says what C2 would be given
    assert usual.penalty and tiny(defence=usual).defence == usual


@pytest.mark.parametrize("path", ["", None, 3, b"run", "a\0b", tj.Run])
def test_what_names_no_directory_is_refused(
    path: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty name is the working directory to Python, and an unset variable to a shell."""
    monkeypatch.chdir(tmp_path)
    for door in (tj.load_run, tj.load_sweep, partial(run, Config())):
        with pytest.raises(InvalidSetting, match="must name a directory, not"):
            door(path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"folder": ""}, "folder must name a directory, not ''"),
        ({"folder": 3}, "folder must name a directory, not 3"),
        ({"title": 3}, "title must be a str, not 3"),
        ({"settings": {"model": object()}}, "must fit into JSON"),
        ({"theta": np.ones(3)}, "must fit into JSON"),
        ({"seed": None}, "seed must be an integer"),
        ({"result": None}, "result must be a Result"),
        ({"federation": 3}, "federation must be a Partition"),
    ],
)
def test_what_cannot_be_saved_is_refused_before_anything_is_written(
    change: dict[str, Any],
    words: str,
    result: tj.Result,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    whole = {"folder": "run", "result": result, "federation": federation(X), "title": "x"}
    with pytest.raises(InvalidSetting, match=words):
        tj.save_run(**(whole | change))
    assert not list(tmp_path.iterdir())


def test_numbers_of_numpy_are_numbers() -> None:
    ours = tj.Training(rounds=np.int64(2), learning_rate=np.float32(0.5))  # type: ignore[arg-type]
    assert (type(ours.rounds), type(ours.learning_rate)) == (int, float)
    assert tj.Adversary("d2", clients=np.array([1, 4])).clients == (1, 4)  # type: ignore[arg-type]


@pytest.mark.parametrize("n", [0, -1, 2.5, "3", None, True, 2**70])
def test_clients_are_counted(n: Any) -> None:
    refused("n_clients", lambda: federation(X, n=n))


@pytest.mark.parametrize("seed", [2**70, 2**32, -1, 1.5, "0", None, True])
def test_seeds_fit_into_32_bits(seed: Any) -> None:
    for attempt in (
        lambda: tj.distribute(tj.Dataset(X, Y, X, Y, 3), 3, seed=seed),
        lambda: tj.load_dataset("synthetic", seed=seed),
        lambda: simulation(seed=seed),
    ):
        refused("^seed must be", attempt)


def test_names_stand_for_objects_where_it_is_obvious() -> None:
    assert len(tj.load_dataset("digits").test_labels) == 500
    sized = federation(X, distribution="sizes")
    assert np.ptp(sized.levels) > 0
    named = simulation(sized.data, "mlp", adversary="d2")
    assert named.learner.model.theta.size == 5 * 64 + 64 + 64 * 3 + 3 and len(named.liars) == 1


@pytest.mark.parametrize(
    ("setting", "value", "words"),
    [
        ("data", X, "a ClientData, not of type"),
        ("dataset", "digits", "data and dataset are both given"),
        ("n_clients", 3, "data are divided already"),
        ("model", "mpl", "did you mean mlp"),
        ("model", tj.Model, "must be a Model, not the class itself"),
        ("model", nn.Dense, "must be a Model"),
        ("topology", nx.path_graph(3), "a Topology, not of type Graph: give a name, or"),
        ("training", {"rounds": 3}, "must be a Training"),
        ("contribution", "surogate", "did you mean surrogate"),
        ("contribution", {}, "must be a Contribution"),
        ("defence", "c3", "one of none, c1, c2, both"),
        ("topology", "rign", "did you mean ring"),
        ("adversary", "d4", "adversary.kind must be one of"),
        ("rules", {"audit": tj.Defence}, "an object, not the class Defence"),
        ("rules", {"audit": [1]}, "frozen dataclass"),
        ("rules", {"audits": 1}, "no rule 'audits'"),
    ],
)
def test_what_is_no_part_of_a_simulation_is_refused(setting: str, value: Any, words: str) -> None:
    refused(words, lambda: simulation(**{setting: value}))


DTYPES = st.sampled_from(["?", "u1", "u2", "i4", "i8", "f2", "f4", "f8", "c8", "U3", "M8[s]"])
VALUES = DTYPES.flatmap(lambda kind: hnp.arrays(kind, hnp.array_shapes(max_dims=5, max_side=5)))


@given(values=VALUES, integers=st.booleans())
def test_any_array_is_refused_or_seen_as_it_is(values: np.ndarray, integers: bool) -> None:
    """The only outcomes: one sentence, or finite numbers that models see unchanged."""
    labels = np.zeros(len(values), np.int64)
    try:
        found = tj.Dataset(values.tolist() if integers else values, labels, values, labels, 1)
    except InvalidSetting as error:
        assert "_images" in str(error) and "\n" not in str(error)
        return
    seen = found.test_images
    assert seen.dtype in (np.uint8, np.float32, np.int32) and np.isfinite(seen).all()
    np.testing.assert_allclose(seen, values.astype(np.float32), rtol=1e-6)
    if seen.ndim == 4 and seen.dtype == np.float32:
        assert seen.min() < 0 or seen.max() <= 1


@given(labels=hnp.arrays(st.sampled_from(["?", "i1", "i8", "u8", "f4", "U1"]), (6,)))
def test_labels_are_classes_or_refused(labels: np.ndarray) -> None:
    data = replace(tiny_data((3, 3)), labels=labels)
    try:
        found = tiny(nx.path_graph(2), data=data).data.labels
    except InvalidSetting as error:
        assert "label" in str(error)
    else:
        assert found.min() >= 0 and found.max() < 3
        np.testing.assert_array_equal(found, labels.astype(int))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"labels": jnp.full(69, -1)}, "labels must lie in"),
        ({"labels": np.zeros(50, int)}, r"labels must be \[69\]"),
        ({"labels": np.eye(3)[np.zeros(69, int)]}, "argmax"),
        ({"labels": np.zeros(69)}, "of one kind, not .* give integers for classes"),
        ({"images": np.full((69, 3, 3, 1), 255.0)}, "divide them by 255"),
        ({"images": np.full((69, 3, 3, 1), 255)}, "uint8"),
        ({"images": np.full((69, 3, 3, 1), -0.1)}, "of one scale"),
        ({"images": np.zeros((69, 9), np.float32)}, "must have the shape of images"),
        ({"test_images": None}, "test_images must be"),
        ({"test_images": np.zeros((0, 3, 3, 1))}, "test_images must be"),
        ({"sizes": np.ones(5, int)}, "`sizes` integers"),
        ({"examples": np.full((6, 20), -1)}, "padded with 0"),
        ({"examples": np.zeros((0, 0), int), "sizes": np.zeros(0, int)}, "n > 0 clients"),
    ],
)
def test_clients_data_is_checked_at_the_door(change: dict[str, Any], words: str) -> None:
    graph = tj.topology.build(nx.path_graph(6), np.ones(6))
    data = replace(tiny_data(), **change)
    refused(words, lambda: tj.Simulation(tj.mlp(3), data, graph))


def test_features_of_any_scale_and_form_give_the_same_run(result: tj.Result) -> None:
    for same in (X.tolist(), X.astype(np.float32), jnp.asarray(X)):
        np.testing.assert_array_equal(simulation(federation(same).data).run().phi, result.phi)
    wide = federation(1000 * X, distribution="noisy_images")
    assert wide.level_name.endswith("in standard deviations")
    noise = np.asarray(wide.data.images)[np.asarray(wide.data.examples)] - 1000 * X[
        np.asarray(wide.data.examples)
    ].astype(np.float32)
    np.testing.assert_allclose(noise.std(axis=(1, 2)) / 1000, wide.levels, atol=0.15)
    assert np.abs(noise).max() > 1  # not clipped


class Tokens(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        return nn.Dense(3)(nn.Embed(9, 4)(x).mean(axis=1))


def test_tokens_are_for_models_that_take_them() -> None:
    tokens = federation(RNG.integers(0, 9, (60, 5))).data
    assert np.isfinite(simulation(tokens, Tokens()).run().phi).all()
    refused("take numbers, not tokens", lambda: simulation(tokens))
    refused("not to tokens", lambda: federation(np.ones((60, 5), int), distribution="noisy_images"))
    with pytest.raises(ValueError, match="integer") as caught:
        simulation(federation(np.ones((60, 5), np.uint8)).data, Tokens())
    assert "not as uint8, which are pixels" in str(caught.value.__notes__)


class Layered(nn.Module):
    dropout: bool = False
    norm: bool = False

    @nn.compact
    def __call__(self, x: Any) -> Any:
        x = nn.Dropout(0.5, deterministic=not self.dropout)(x)
        return nn.Dense(3)(nn.BatchNorm(use_running_average=False)(x) if self.norm else x)


class Graphical(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.hidden, self.logits = nnx.Linear(5, 4, rngs=rngs), nnx.Linear(4, 3, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        return self.logits(nnx.relu(self.hidden(x)))


def weights(**leaves: Any) -> Callable[[Any, Any], Any]:
    return lambda key, x: {"w": jnp.ones((5, 3)), **leaves}


def linear(params: Any, x: Any) -> Any:
    return x @ params["w"]


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (tj.Model(lambda key, x: {}, lambda params, x: x[:, :3]), "gives no parameters"),
        (tj.Model(weights(b=jnp.ones(3, int)), linear), r"params\['b'\] is int32"),
        (tj.Model(weights(b=jnp.ones(3, jnp.bfloat16)), linear), "bfloat16: .*Model.apply"),
        (tj.Model(weights(w=jnp.full((5, 3), jnp.nan)), linear), "starts with a loss that is not"),
        (tj.Model(weights(), lambda p, x: (linear(p, x), 1)), "one array of logits"),
        (tj.Model(weights(), lambda p, x: linear(p, x).sum(1)), r"float32\[3\]"),
        (tj.Model(weights(), lambda p, x: linear(p, x).ravel()), r"float32\[9\]"),
        (tj.Model(weights(), lambda p, x: linear(p, x).astype(int)), r"int32\[3, 3\]"),
        (tj.Model(weights(), linear, lambda p, x: linear(p, x)[:2]), r"float32\[2, 3\]"),
        (tj.Model(weights(), lambda p, x: linear(p, x)[:, :2]), "2 classes apart"),
        (tj.cnn(3), r"does not take examples \[5\]"),
        ("cnn", "takes images"),
        (Layered(dropout=True), "Layered draws random numbers where it is evaluated"),
        (Layered(norm=True), "Layered changes its statistics where .* an argument train"),
        (tj.Model(weights(), linear, trained="v"), "Model.trained=v is no key"),
        (tj.Model(weights(), linear, train=lambda p, x, key: linear(p, x)), "logits and params of"),
        (tj.Model(weights(), linear, train=lambda p, x, key: (x, {})), "of the shapes that it was"),
        (tj.from_flax(lambda rngs: 3), "no module of NNX but 3"),
    ],
)
def test_models_that_cannot_be_trained_are_refused(model: Any, words: str) -> None:
    refused(words, lambda: simulation(model=model).run())


def test_what_makes_no_model_is_refused() -> None:
    refused("give lambda rngs: Graphical", lambda: tj.from_flax(Graphical(nnx.Rngs(0))))
    refused("takes a Linen module, .* not Dense", lambda: tj.from_flax(nn.Dense))
    refused("Model.init must be a function", lambda: tj.Model(3, linear))  # type: ignore[arg-type]


def test_modules_of_nnx_train_and_are_drawn_by_seed() -> None:
    model = tj.from_flax(Graphical)
    one, same, other = (simulation(model=model, seed=seed) for seed in (0, 0, 1))
    first, again, another = (np.asarray(each.start().models) for each in (one, same, other))
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - another).max() > 0.1
    result = one.run()
    assert np.isfinite(result.phi).all() and np.abs(result.models - first).max() > 0
    assert result.models.shape == (3, 5 * 4 + 4 + 4 * 3 + 3)


PATH = [(0, 1), (1, 2), (2, 3)]


@pytest.mark.parametrize(
    "graph", [PATH, [list(edge) for edge in PATH], np.array(PATH), nx.path_graph(4).edges]
)
def test_edge_lists_are_graphs(graph: Any) -> None:
    one, other = (tj.topology.build(g, np.ones(4)).graphs for g in (graph, nx.path_graph(4)))
    np.testing.assert_array_equal(one.weights, other.weights)
    turns = tj.topology.build([graph, nx.path_graph(4)], np.ones(4)).graphs
    np.testing.assert_array_equal(turns.members[0], turns.members[1])


NUMBERS = st.one_of(st.integers(-2, 5), st.floats(), st.text(max_size=2), st.none())
NESTED = st.recursive(NUMBERS, lambda inner: st.lists(inner, max_size=4), max_leaves=20)


@given(graphs=NESTED, n=st.integers(1, 4))
def test_nested_lists_are_graphs_or_refused(graphs: Any, n: int) -> None:
    try:
        shares = np.asarray(tj.topology.build(graphs, np.ones(n)).at(0).shares)
    except InvalidSetting as error:
        assert "\n" not in str(error)
    else:
        np.testing.assert_allclose(shares.sum(axis=1), np.ones(n), rtol=1e-6)


def test_what_is_edges_or_weights_of_two_clients_is_asked_for() -> None:
    refused("edges as tuples", lambda: tj.topology.build([[0, 1], [1, 0]], np.ones(2)))
    assert tj.topology.build([(0, 1), (1, 0)], np.ones(2)).at(0).mask.all()


def test_reports_of_more_clients_than_there_are_said_to_be_are_refused() -> None:
    good = {
        "client": [[0, 0, 1, 1]],
        "member": [[0, 1, 0, 1]],
        "weight": [[1.0, 1, 1, 1]],
        "lcv": [[0.1, 0.2, 0.3, 0.4]],
        "real": [[True] * 4],
    }
    phi, _ = tj.trace(tj.Reports(**good), 2)
    np.testing.assert_allclose(phi, [[0.1, 0.2], [0.3, 0.4]], rtol=1e-6)
    for n, words in ((1, "n must count all"), (3, "Client 2 reports no"), (9, "can't all report")):
        refused(words, lambda n=n: tj.trace(tj.Reports(**good), n))  # type: ignore[misc]
    for name, values, words in (
        ("member", [[0, -1, 0, 1]], "member has -1"),
        ("weight", [[1, np.nan, 1, 1]], "finite and not negative"),
        ("weight", [[0, 0, 1, 1]], "Client 0 reports no weight"),
        ("client", [0, 0, 1, 1], r"all be \[T, A\]"),
        ("real", [[1, 1, 1, 1]], "bools"),
    ):
        refused(words, lambda v={**good, name: values}: tj.trace(tj.Reports(**v), 2))  # type: ignore[misc]


def test_evaluation_is_compiled_once_for_a_shape() -> None:
    one = tiny()
    models = jnp.tile(one.learner.model.theta, (2, 1))
    one.evaluate(models)
    compiled = evaluate._cache_size()
    for _ in range(3):
        one.evaluate(models + 1)
    assert evaluate._cache_size() == compiled
