"""What nodes compute without JAX: the simulator's contributions, from models of any form."""

import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import save_file

from tests import reference as ref
from tests.conftest import follow, layers, rarely, tiny
from trip_jax.config import Contribution
from trip_jax.coordinate import main
from trip_jax.node import LocalEvaluator, Report
from trip_jax.node.report import COLUMNS, LARGEST
from trip_jax.node.tracing import shares
from trip_jax.protocol import coordinator
from trip_jax.protocol.algorithm import learn
from trip_jax.settings.errors import InvalidSetting
from trip_jax.shapley.coalitions import CoalitionRows

ROOT = Path(__file__).parent.parent

WITHOUT = """
import sys

class NumPyAlone:
    def find_spec(self, name, path=None, target=None):
        package = name.partition(".")[0]
        allowed = "numpy", "trip_jax", "trip_node", "lazy_loader", "cryptography", "cffi"
        if not (package in (*allowed, *sys.stdlib_module_names) or package[0] == "_"):
            raise ImportError(f"{name} is blocked")

sys.meta_path.insert(0, NumPyAlone())
import numpy as np
import trip_jax
import trip_jax.node.sending, trip_jax.node.signing, trip_jax.node.tracing
from trip_jax.node import LocalEvaluator

models = {j: [np.full(2, float(j))] for j in range(3)}
before = {j: [np.zeros(2)] for j in range(3)}
for settings in ({}, {"estimator": "permutation", "budget": 20}):
    many = LocalEvaluator(lambda model: model[0].sum(), client=2, normalization="efficient")
    report = many.lcv(before, models, dict.fromkeys(range(3), 1), round=4)
print(report.to_json())
print(sorted({name.partition(".")[0] for name in sys.modules} & {"jax", "flax", "hydra"}))
"""


def test_numpy_is_all_it_takes() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT], capture_output=True, text=True, cwd=ROOT, check=True
    )
    report, loaded = done.stdout.splitlines()
    assert loaded == "[]"
    told = Report.from_json(report)
    assert dict(zip(told.members, told.lcv, strict=True)) == pytest.approx(
        {"2": 4 / 3, "0": 0, "1": 2 / 3}
    )


def as_dict(theta: ref.Params) -> dict[str, np.ndarray]:
    """A model of the oracle's in float32, by names."""
    return {
        f"{kind}{k}": one.astype(np.float32)
        for k, layer in enumerate(theta)
        for kind, one in zip(("kernel", "bias"), layer, strict=True)
    }


@pytest.mark.parametrize("normalization", ["paper", rarely("efficient")])
def test_contributions_are_the_simulators_on_the_same_models(normalization: str) -> None:
    simulation = tiny(nx.star_graph(5), contribution=Contribution(normalization=normalization))
    trajectory = follow(simulation)
    state, record = trajectory.states[1], trajectory.records[1]
    learned = learn(*simulation.learning, state)
    here = simulation.topology.at(1)
    x, y = np.asarray(simulation.data.test_images, float), np.asarray(simulation.data.test_labels)

    def loss(model: dict[str, np.ndarray]) -> float:
        theta = [(model[f"kernel{k}"], model[f"bias{k}"]) for k in range(len(model) // 2)]
        return ref.utilities(theta, x, y)["loss"]

    for i in range(simulation.n):
        real = np.asarray(here.mask[i])
        members = np.asarray(here.members[i])[real].tolist()
        weights = dict(zip(members, np.asarray(here.weights[i])[real].tolist(), strict=True))
        before = {j: as_dict(layers(simulation, state.models[j])) for j in members}
        after = {j: as_dict(layers(simulation, learned.trained[j])) for j in members}
        evaluator = LocalEvaluator(loss, i, normalization=normalization)
        report = evaluator.lcv(before, after, weights)
        found = dict(zip(report.members, report.lcv, strict=True))
        expected = record.lcv[i, : len(members), 1]
        np.testing.assert_allclose([found[str(j)] for j in members], expected, atol=2e-5)
        assert report.evaluations == 2 ** len(members) and report.estimator == "exact"
    assert np.abs(record.lcv[..., 1]).max() > 0.01


def game(m: int, seed: int = 0) -> tuple[dict[int, Any], dict[int, Any], dict[int, float]]:
    """Models of a number in each of two arrays."""
    rng = np.random.default_rng(seed)
    before, after = ({j: [rng.random(3), rng.random(1)] for j in range(m)} for _ in range(2))
    return before, after, {j: 1.0 + j for j in range(m)}


def curved(model: Any) -> float:
    first, second = model
    return float(np.sin(3 * first).sum() + second[0] ** 2 * first[0])


@pytest.mark.parametrize("estimator", ["antithetic", "permutation"])
def test_samples_come_near_the_exact_values_and_say_how_near(estimator: str) -> None:
    before, after, weights = game(9)
    exact = LocalEvaluator(curved, 3, estimator="exact").lcv(before, after, weights)
    seen: list[tuple[int, int]] = []

    def progress(*now: int) -> None:
        seen.append((now[0], now[1]))

    sampled = LocalEvaluator(curved, 3, estimator=estimator, budget=300, progress=progress)
    report = sampled.lcv(before, after, weights, round=5)
    error = np.abs(np.subtract(report.lcv, exact.lcv))
    assert (error < 4 * np.array(report.standard_error) + 1e-9).all() and error.any()
    assert sum(report.lcv) == pytest.approx(sum(exact.lcv))  # efficiency
    assert report.evaluations <= 300 and report.estimator == estimator
    assert seen == [(k + 1, report.evaluations) for k in range(report.evaluations)]
    assert sampled.lcv(before, after, weights, round=5) == report
    assert sampled.lcv(before, after, weights, round=6).lcv != report.lcv


def test_a_semivalue_that_needs_few_coalitions_evaluates_few() -> None:
    before, after, weights = game(5)
    report = LocalEvaluator(curved, 0, semivalue="loo").lcv(before, after, weights)
    assert report.evaluations == 6
    rows = CoalitionRows.of(np.array([[5]]), batch=1, semivalue="loo")
    assert report.evaluations == int(rows.n_needed(np.array([[5]]))[0])


def test_c1_takes_ones_own_model_for_one_that_is_worse() -> None:
    before, after, weights = game(3)
    before[1][1][:] = -50.0
    before[1][0][0] = -1.0
    replaced = {**before, 1: before[0]}
    expected = LocalEvaluator(curved, 0).lcv(replaced, after, weights)
    report = LocalEvaluator(curved, 0, c1=5.0).lcv(before, after, weights)
    assert report.replaced == ("1",) and report.lcv == expected.lcv
    assert report.evaluations == 8 + 3
    assert LocalEvaluator(curved, 0).lcv(before, after, weights).replaced == ()
    before[1][0][1] = np.nan  # can't be mixed at all
    report = LocalEvaluator(curved, 0).lcv(before, after, weights)
    assert report.replaced == ("1",) and report.lcv == expected.lcv


def test_files_are_read_as_arrays_are(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)

    def model() -> dict[str, np.ndarray]:
        seen = {"seen": np.array(rng.integers(9)), "none": np.zeros((0, 3), np.float32)}
        return {"w": rng.random((2, 3)).astype(np.float16), "b": rng.random(3)} | seen

    def utility(model: dict[str, np.ndarray]) -> float:
        assert model["w"].dtype == np.float16 and model["b"].dtype == np.float64
        assert model["seen"] == after[1]["seen"]  # the client's own, in every mixture
        return float(model["w"].sum() ** 2 + model["b"] @ [1, 2, 3])

    before, after = ({j: model() for j in range(3)} for _ in range(2))
    weights = {0: 1, 1: 1, 2: 0.5}
    expected = LocalEvaluator(utility, 1).lcv(before, after, weights)
    stored: list[dict[int, Path]] = []
    for when, models in (("before", before), ("after", after)):
        stored.append({j: tmp_path / f"{when}{j}.safetensors" for j in models})
        for j, one in models.items():
            save_file(one, stored[-1][j], metadata={"format": "pt"})
    assert LocalEvaluator(utility, 1).lcv(*stored, weights) == expected
    whole = stored[0][0].read_bytes()
    for damaged in (b"", whole[:-1], b"\xff" * 40, b"\2" + bytes(7) + b"[]"):
        stored[0][0].write_bytes(damaged)
        with pytest.raises(InvalidSetting, match=r"before0.safetensors (is|cannot)"):
            LocalEvaluator(utility, 1).lcv(*stored, weights)


def test_a_state_dict_of_pytorch(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="pip install torch")
    network = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    x = torch.randn(8, 3)

    def trained() -> dict[str, Any]:
        network(x + torch.randn(1))
        state = {name: one.clone() for name, one in network.state_dict().items()}
        return {
            n: one + torch.rand(()) if one.is_floating_point() else one for n, one in state.items()
        }

    before, after = ({j: trained() for j in "ab"} for _ in range(2))

    def utility(state: dict[str, Any]) -> float:
        network.load_state_dict(state)
        assert state["1.num_batches_tracked"] == after["b"]["1.num_batches_tracked"]
        with torch.no_grad():
            return float(network.eval()(x).mean())

    report = LocalEvaluator(utility, "b").lcv(before, after, {"a": 1, "b": 3})
    arrays = [
        {j: {n: one.numpy() for n, one in m.items()} for j, m in ms.items()}
        for ms in (before, after)
    ]
    same = LocalEvaluator(
        lambda model: utility({n: torch.as_tensor(one) for n, one in model.items()}), "b"
    ).lcv(*arrays, {"a": 1, "b": 3})
    np.testing.assert_allclose(report.lcv, same.lcv, rtol=1e-5)
    half = [
        {
            j: {n: one.bfloat16() if one.is_floating_point() else one for n, one in m.items()}
            for j, m in ms.items()
        }
        for ms in (before, after)
    ]
    LocalEvaluator(lambda state: float(state["0.bias"].float().sum()), "b").lcv(
        *half, {"a": 1, "b": 3}
    )


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no such member": ({"weights": {0: 1, 1: 1}}, "before and weights must be of the same members"),
    "not oneself": ({"client": 7}, "weights lacks the client itself, 7"),
    "no weight": ({"weights": {0: 0, 1: 0, 2: 0}}, "weights must be numbers from 0 up"),
    "nan weight": ({"weights": {0: 1, 1: float("nan"), 2: 0}}, "weights must be numbers"),
    "a truth value as weight": ({"weights": {0: True, 1: 1, 2: 1}}, "weights must be numbers"),
    "a complex weight": ({"weights": {0: 1 + 0j, 1: 1, 2: 1}}, "weights must be numbers"),
    "a word as weight": ({"weights": {0: "1", 1: 1, 2: 1}}, "weights must be numbers"),
    "nothing as weight": ({"weights": {0: None, 1: 1, 2: 1}}, "weights must be numbers"),
    "infinite weight": ({"weights": {0: 1, 1: float("inf"), 2: 1}}, "weights must be numbers"),
    "negative weight": ({"weights": {0: 1, 1: -1, 2: 1}}, "weights must be numbers"),
    "several weights": ({"weights": {0: 1, 1: np.ones(2), 2: 1}}, "weights must be numbers"),
    "no utility": ({"evaluate": lambda model: None}, "evaluate gave NoneType"),
    "utility in words": ({"evaluate": lambda model: "0.5"}, "evaluate gave str"),
    "utilities": ({"evaluate": lambda model: np.ones(3)}, "evaluate gave ndarray"),
    "complex utility": ({"evaluate": lambda model: 1j}, "evaluate gave complex"),
    "endless utility": ({"evaluate": lambda model: 1e300}, r"evaluate gave 1e\+300"),
    "nan utility": ({"evaluate": lambda model: float("nan")}, "evaluate gave nan"),
    "other shape": ({"after": {2: [np.zeros(4), np.zeros(1)]}}, r"after\[2\] has 0 as float64"),
    "other arrays": ({"before": {2: [np.zeros(3)]}}, r"before\[2\] has other arrays"),
    "no model": ({"before": {2: 3.0}}, "must be a mapping or a list of arrays"),
    "words": ({"before": {2: [np.array(["a"])]}}, "must hold numbers"),
    "ragged": ({"before": {2: [[[1.0], [2.0, 3.0]], [0.0]]}}, "must hold arrays of numbers"),
    "bytes": ({"before": {2: b"abc"}}, "must be a mapping or a list of arrays"),
    "complex": ({"before": {2: [np.zeros(3, complex), np.zeros(1)]}}, "as complex128"),
    "own nan after": ({"after": {0: [np.full(3, np.nan), np.zeros(1)]}}, "own model after"),
    "own nan before": ({"before": {0: [np.full(3, np.nan), np.zeros(1)]}}, "own model before"),
    "nan model": ({"after": {2: [np.full(3, np.nan), np.zeros(1)]}}, "leave its model out"),
    "estimator": ({"estimator": "kernelshap"}, "estimator must be one of antithetic"),
    "budget": ({"budget": 6}, "budget=6 is too small for m=3 members by antithetic"),
    "samples": ({"budget": 7, "semivalue": "banzhaf"}, "not estimated from samples"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_is_refused_in_a_sentence(case: str) -> None:
    changed, message = REFUSED[case]
    before, after, weights = game(3)
    before |= changed.get("before", {})
    after |= changed.get("after", {})
    settings = {k: v for k, v in changed.items() if k not in ("before", "after", "weights")}
    with pytest.raises(InvalidSetting, match=message) as refusal:
        evaluator = LocalEvaluator(**{"evaluate": curved, "client": 0} | settings)
        evaluator.lcv(before, after, changed.get("weights", weights))
    assert str(refusal.value).endswith(".")


@pytest.mark.parametrize(
    "scale",
    [1e308, 10**400, 5e-324, 3e38, 2**70, np.float32(3e38), np.int64(2**62), np.float16(6e4)],
)
def test_weights_of_any_scale_are_the_same_proportions(scale: Any) -> None:
    before, after, _ = game(3)
    expected = LocalEvaluator(curved, 0).lcv(before, after, {0: 1.0, 1: 1, 2: 1.0})
    report = LocalEvaluator(curved, 0).lcv(before, after, dict.fromkeys(range(3), scale))
    assert report.lcv == pytest.approx(expected.lcv) and len(set(report.weights)) == 1
    assert Report.from_json(report.to_json()) == report
    lightest = LocalEvaluator(curved, 0).lcv(before, after, {0: scale, 1: 0, 2: 0})
    assert lightest.lcv[1:] == (0, 0)


@pytest.mark.parametrize("weight", [600, np.int64(600), np.float32(600), np.array(600.0)])
def test_ordinary_weights_are_reported_as_they_are(weight: Any) -> None:
    before, after, _ = game(2)
    report = LocalEvaluator(curved, 0).lcv(before, after, {0: weight, 1: 300})
    assert report.weights == (600, 300) and {type(one) for one in report.weights} == {float}


@pytest.mark.parametrize("utility", [np.float32(2), np.array([2.0]), np.int8(2), True])
def test_utilities_are_numbers_of_any_kind(utility: Any) -> None:
    before, after, weights = game(2)
    assert LocalEvaluator(lambda _: utility, 0).lcv(before, after, weights).lcv == (0, 0)


def deep(model: Any) -> float:
    """A loss that grows as the square of its model, as float32 holds it."""
    first, second = (np.asarray(one, np.float32) for one in model)
    with np.errstate(all="ignore"):
        return float(-((first.sum() * second[0]) ** 2))


def strict(model: Any) -> float:
    """The same, of a framework that raises where numbers end."""
    with np.errstate(all="raise"):
        first, second = (np.asarray(one, np.float32) for one in model)
        return float(-((first.sum() * second[0]) ** 2))


GARBAGE = [3e38, -3e38, 1e25, 1e300, np.inf, np.nan]


@pytest.mark.parametrize("c1", [None, 0.065])
@pytest.mark.parametrize("evaluate", [deep, strict])
@pytest.mark.parametrize("value", GARBAGE)
def test_garbage_before_training_stops_no_honest_node(
    evaluate: Any, value: float, c1: float | None
) -> None:
    before, after, weights = (game(3)[k] for k in range(3))
    single = {j: [np.asarray(one, np.float32) for one in m] for j, m in before.items()}
    fouled = single | {1: [np.full(3, value), np.full(1, value)]}
    expected = LocalEvaluator(deep, 0).lcv(single | {1: single[0]}, after, weights)
    seen: list[tuple[int, int]] = []
    evaluator = LocalEvaluator(evaluate, 0, c1=c1, progress=lambda *now: seen.append(now))
    report = evaluator.lcv(fouled, after, weights)
    assert report.replaced[:1] == ("1",) and np.isfinite(report.lcv).all()
    if c1 is None:
        assert report.lcv == pytest.approx(expected.lcv) and report.replaced == ("1",)
    assert [now for now, _ in seen] == list(range(1, report.evaluations + 1))
    assert all(now <= of for now, of in seen)


@pytest.mark.parametrize("evaluate", [deep, strict])
@pytest.mark.parametrize("value", GARBAGE)
def test_garbage_after_training_is_named(evaluate: Any, value: float) -> None:
    before, after, weights = game(3)
    fouled = after | {2: [np.full(3, value), np.full(1, value)]}
    said = (
        r"^after\[2\] .* no number: leave its model out of the mixture, too; LocalEvaluator.usable"
    )
    assert LocalEvaluator(evaluate, 0).usable(after) == [0, 1, 2]
    assert LocalEvaluator(evaluate, 0).usable(dict(reversed(fouled.items()))) == [0, 1]
    with pytest.raises(InvalidSetting, match=said):
        LocalEvaluator(evaluate, 0).lcv(before, fouled, weights)
    del before[2], fouled[2], weights[2]
    LocalEvaluator(evaluate, 0).lcv(before, fouled, weights)


def test_a_narrow_own_model_meets_a_wide_one_of_huge_numbers() -> None:
    """What float32 can't hold is no number to a node of float32."""
    own, wide = ([np.ones(3, kind), np.ones(1, kind)] for kind in (np.float32, np.float64))
    wide[0][0] = 1e60
    report = LocalEvaluator(deep, 0).lcv({0: own, 1: wide}, {0: own, 1: own}, {0: 1, 1: 1})
    assert report.replaced == ("1",) and report.lcv == (0, 0)


def test_a_fault_of_evaluate_itself_comes_through() -> None:
    before, after, weights = game(3)

    def broken(model: Any) -> float:
        raise KeyError("test set")

    for c1 in (None, 0.065):
        with pytest.raises(KeyError, match="test set"):
            LocalEvaluator(broken, 0, c1=c1).lcv(before, after, weights)

    def full(model: Any) -> float:
        raise MemoryError

    with pytest.raises(MemoryError):
        LocalEvaluator(full, 0, c1=0.065).lcv(before, after, weights)


@pytest.mark.parametrize("round", [1.5, "1", None, True, 2**62, -(10**400)])
def test_a_round_that_is_none_is_refused_before_any_work(round: Any) -> None:
    before, after, weights = game(2)
    evaluator = LocalEvaluator(lambda _: pytest.fail("it was evaluated"), 0)
    with pytest.raises(InvalidSetting, match=r"^round must be an integer within 2\^62 of 0"):
        evaluator.lcv(before, after, weights, round=round)


@pytest.mark.parametrize("round", [3, -3])
def test_a_round_counted_by_numpy_is_that_round(round: int) -> None:
    before, after, weights = game(9)
    evaluator = LocalEvaluator(curved, 0, budget=300)
    told = evaluator.lcv(before, after, weights, round=np.int64(round))
    assert told == evaluator.lcv(before, after, weights, round=round)
    assert told.round == round and type(told.round) is int


@pytest.mark.parametrize("sent_to", [5, "bob"])
def test_who_was_sent_a_model_is_a_list(sent_to: Any) -> None:
    before, after, weights = game(2)
    evaluator = LocalEvaluator(lambda _: pytest.fail("it was evaluated"), 0)
    with pytest.raises(InvalidSetting, match=r"^sent_to must be a list of clients, not '(5|bob)'"):
        evaluator.lcv(before, after, weights, sent_to=sent_to)


def test_reports_are_read_by_the_coordinator(tmp_path: Path) -> None:
    before, after, weights = game(3)
    reports = [
        LocalEvaluator(curved, i).lcv(before, after, weights, round=t)
        for t in (1, 2)
        for i in range(3)
    ]
    assert [Report.from_json(one.to_json()) for one in reports] == reports
    text = reports[0].to_csv() + "".join(one.to_csv(header=False) for one in reports[1:])
    assert text.startswith(",".join(COLUMNS)) and (tmp_path / "reports.csv").write_text(text)
    assert main([str(tmp_path / "reports.csv"), "--out", str(tmp_path / "out")]) == 0
    lcv = np.array([dict(zip(r.members, r.lcv, strict=True)) for r in reports]).reshape(2, 3)
    first, second = ([{int(j): v for j, v in one.items()} for one in row] for row in lcv)
    phi = ref.update_contributions(np.zeros((3, 3)), first, [weights] * 3)
    phi = ref.update_contributions(phi, second, [weights] * 3)
    found = pd.read_csv(tmp_path / "out" / "phi.csv")["contribution"].to_numpy().reshape(3, 3)
    np.testing.assert_allclose(found, phi, rtol=1e-5)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("schema", "trip_jax.report/3", "schema must be"),
        ("round", 1.5, "round must be an integer"),
        ("round", True, "round must be an integer"),
        ("client", "", "client must have a name"),
        ("client", "x", "name the client itself"),
        ("members", ["0", "0"], "each member once"),
        ("members", "01", "members must be a list"),
        ("weights", [1.0], "a number for each member"),
        ("weights", [-1.0, 2.0], "from 0 up"),
        ("lcv", [1e16, 0.0], r"up to 1e\+15"),
        ("lcv", [True, 0.0], "finite numbers"),
        ("lcv", [10**400, 0], "finite numbers"),
        ("lcv", [1e300, 0], "finite numbers"),
        ("evaluations", 2**62, "evaluations must lie within"),
        ("sent_to", None, "sent_to must be a list"),
        ("sent_to", ["1", "1"], "sent_to must name each client once"),
        ("sent_to", [""], "sent_to must be a list of names"),
        ("members", ["\ud800", "0"], "no JSON in UTF-8"),
        ("estimator", "\ud800", "no JSON in UTF-8"),
        ("\ud800", 1, "no JSON in UTF-8"),
        ("z" * 1000, 1, "see z{50}[.]$"),
        ("replaced", [[]] * 100, "more than 16 lists"),
        ("path", "/etc/passwd", "exactly its fields: see path"),
    ],
)
def test_json_that_is_no_report_is_refused(field: str, value: Any, message: str) -> None:
    before, after, weights = game(2)
    good = json.loads(LocalEvaluator(curved, 0).lcv(before, after, weights).to_json())
    assert LARGEST == coordinator.LARGEST
    with pytest.raises(InvalidSetting, match=message):
        Report.from_json(json.dumps(good | {field: value}))


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"a": NaN}', '{"a": 1, "a": 2}', "[" * 10**5, b"\xff"]
)
def test_text_that_is_no_json_is_refused(text: str | bytes) -> None:
    with pytest.raises(InvalidSetting):
        Report.from_json(text)


def test_text_of_many_brackets_is_refused_at_once() -> None:
    nested = ("[" * 900 + "]" * 900 + ",") * 580
    for many in (nested, "[]," * 349_000, "{}," * 349_000):
        began = time.process_time()
        with pytest.raises(InvalidSetting, match="more than 16 lists"):
            Report.from_json('{"schema": "trip_jax.report/2", "x": [' + many + "1]}")
        assert time.process_time() - began < 0.5
    members = tuple(f"{{[{i}" for i in range(100))  # brackets in names are none
    told = Report("{[0", 1, members, (1.0,) * 100, (0.0,) * 100, (0.0,) * 100, 2)
    assert Report.from_json(told.to_json()) == told


@pytest.mark.parametrize("weight", [600, 10**20, 10**299, 2**63])
def test_whole_numbers_are_numbers(weight: int) -> None:
    told = Report("a", 1, ("a", "b"), (weight, 3 * weight), (1, -2), (0, 0), 4)
    assert told.weights == (float(weight), 3.0 * weight) and type(told.lcv[0]) is float
    again = Report.from_json(told.to_json().replace(".0", ""))
    assert again == told and again.meaning == told.meaning
    np.testing.assert_allclose(shares(np.array(told.weights)), [0.25, 0.75])
    for beyond in (10**400, -(10**400)):
        for field in ("weights", "lcv", "standard_error"):
            with pytest.raises(InvalidSetting, match=f"{field} must be a list of finite numbers"):
                replace(told, **{field: (beyond, 1)})


@pytest.mark.parametrize("weight", [5e-324, 1e299])
def test_shares_are_those_of_weights_at_the_ends_of_floats(weight: float) -> None:
    told = Report("a", 1, ("a", "b"), (weight, weight), (1, 2), (0, 0), 4)
    assert shares(np.array(told.weights)).tolist() == [0.5, 0.5]


def test_names_are_kept_in_one_form() -> None:
    told = Report("jose\u0301", 1, ("jos\u00e9", "b"), (1, 1), (1, 2), (0, 0), 4, sent_to=("b",))
    assert told.client == told.members[0] == "jos\u00e9"
    with pytest.raises(InvalidSetting, match="each member once"):
        replace(told, members=("jos\u00e9", "jose\u0301"))
    with pytest.raises(InvalidSetting, match="client must be text"):
        replace(told, client="\ud800")


def test_a_client_says_to_whom_it_sent_its_model() -> None:
    before, after, weights = game(3)
    evaluator = LocalEvaluator(curved, 0)
    told = evaluator.lcv(before, after, weights)
    assert told.sent_to == ("1", "2")  # an exchange, unless something else is said
    told = evaluator.lcv(before, after, weights, sent_to=[7, 0, 2])
    assert told.sent_to == ("7", "2") and Report.from_json(told.to_json()) == told
    rows = [line.split(",")[2:5] + line.split(",")[7:] for line in told.to_csv().splitlines()[1:]]
    assert [(row[0], row[3]) for row in rows] == [("0", "0"), ("1", "0"), ("2", "1"), ("7", "1")]
    assert rows[3][1:3] == ["", ""]
    older = json.loads(told.to_json()) | {"schema": "trip_jax.report/1"}
    del older["sent_to"]
    assert Report.from_json(json.dumps(older)) == replace(told, sent_to=None)
    with pytest.raises(InvalidSetting, match="see sent_to"):
        Report.from_json(json.dumps(older | {"sent_to": []}))
