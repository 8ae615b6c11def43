"""Work divided among four simulated devices gives what one device gives."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import pytest

from tests.conftest import TINY, Once, config_of, rarely, tiny, tiny_data
from trip_jax import Adversary, Contribution, Defence, load_run
from trip_jax.learning.device_maps import balanced_map
from trip_jax.learning.devices import MAX_CORES
from trip_jax.learning.mesh import mesh_of, replicated
from trip_jax.runs.launch import run
from trip_jax.truth.shapley_value import centralised_truth, decentralised_truth

pytestmark = pytest.mark.usefixtures("quick_figures")

FOUR = jax.devices()[:4]


@pytest.mark.parametrize("alike", [False, True])
@pytest.mark.parametrize("n_rows", [1, rarely(3), 4, 5, rarely(13)])
def test_every_row_is_worked_on_and_comes_back_in_place(n_rows: int, alike: bool) -> None:
    mesh = mesh_of(FOUR)
    rng = np.random.default_rng(n_rows)
    rows = jnp.asarray(rng.normal(size=(n_rows, 3))), jax.random.split(jax.random.key(0), n_rows)
    cost = None if alike else jnp.asarray(rng.integers(0, 4, n_rows))

    @jax.jit
    def doubled(rows: Any) -> Any:
        def work(rows: Any, factor: int) -> Any:
            return factor * rows[0], jax.vmap(jax.random.bits)(rows[1])

        return balanced_map(mesh, work, rows, 3, cost)

    values, bits = doubled(jax.device_put(rows, replicated(mesh)))
    np.testing.assert_array_equal(values, 3 * rows[0])
    np.testing.assert_array_equal(bits, jax.vmap(jax.random.bits)(rows[1]))


@pytest.mark.parametrize("sizes", [range(2, 10), range(1, 22)])
def test_devices_have_equally_much_to_do(sizes: range) -> None:
    cost = jnp.asarray(np.random.default_rng(0).permutation(sizes))
    mesh = mesh_of(FOUR)

    def whose(rows: jax.Array, _: None) -> jax.Array:
        return jnp.full(len(rows), jax.lax.axis_index("device"))

    device = jax.jit(lambda: balanced_map(mesh, whose, cost, None, cost))()
    work = [int(cost[device == d].sum()) for d in range(4)]
    assert sum(work) == sum(sizes) and max(work) <= sum(sizes) / 4 + len(sizes) / 8


CASES: list[Any] = [
    {},
    {"contribution": Contribution("loss", method="predictions")},
    rarely(  # test_sharding has it on four devices
        {
            "graphs": [nx.path_graph(6), nx.cycle_graph(6)],
            "adversary": Adversary("d1d2", 0.34, collude=True),
            "defence": Defence(c1=True, c2=True),
        }
    ),
    rarely(
        {
            "graphs": nx.star_graph(5),
            "contribution": Contribution(estimator="kernelshap", budget=40),
        }
    ),
    rarely(
        {"graphs": nx.star_graph(5), "contribution": Contribution("loss", method="second_order")}
    ),
    rarely({"graphs": nx.star_graph(5), "privacy": "dp"}),
    rarely({"graphs": nx.star_graph(5), "data": tiny_data((7,) * 6)}),  # all own equally much
]


@pytest.mark.parametrize("settings", CASES)
def test_four_devices_equal_one(settings: dict[str, Any]) -> None:
    one, four = (tiny(devices=FOUR[:d], **settings).run() for d in (1, 4))
    assert (one.n_devices, four.n_devices) == (1, 4)
    np.testing.assert_array_equal(four.models, one.models)
    np.testing.assert_array_equal(four.records.flagged, one.records.flagged)
    np.testing.assert_array_equal(four.records.filtered, one.records.filtered)
    np.testing.assert_allclose(four.phi, one.phi, atol=1e-6)
    for found, expected in zip(
        jax.tree.leaves(four.records), jax.tree.leaves(one.records), strict=True
    ):
        np.testing.assert_allclose(found, expected, atol=1e-6)  # XLA rounds differently


@pytest.mark.thorough
@pytest.mark.parametrize("truth", [decentralised_truth, centralised_truth])
def test_ground_truth_is_the_same_on_four_devices(truth: Any) -> None:
    data = tiny_data((12, 7, 16))
    one, four = (truth(tiny(data=data, devices=FOUR[:d])) for d in (1, 4))
    np.testing.assert_array_equal(four.utilities, one.utilities)


def test_a_round_exchanges_models_once() -> None:
    """Beside them, utilities."""
    simulation = tiny(devices=FOUR)
    programs = simulation.compile(simulation.start())

    def gathered(compiled: Any) -> list[str]:
        return [line for line in compiled.as_text().splitlines() if "all-gather(" in line]

    losses, models = sorted(gathered(programs.learn), key=lambda line: "[4,2]" not in line)
    assert "[4,2]" in losses and f"[4,2,{len(simulation.learner.model.theta)}]" in models
    assert simulation.learner.parts(2 * 3 + 1)
    assert len(gathered(programs.assess)) == 1 and not gathered(programs.coordinate)
    for compiled in (programs.learn, programs.assess, programs.coordinate):
        for other in ("all-reduce(", "all-to-all(", "collective-permute("):
            assert other not in compiled.as_text()


SHARED = tuple(setting for setting in TINY if setting not in ("training.rounds=1", "devices=1"))


UNDRAWN = """
from trip_jax.run import main
from trip_jax.runs import directory
directory.draw_figures = lambda *_: None
main()
"""


def two_processes(folder: Path, *more: str, interrupted: bool = False) -> list[int]:
    """Run the command in two processes that find each other; their exit codes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        coordinator = f"127.0.0.1:{free.getsockname()[1]}"
    command = [sys.executable, "-c", UNDRAWN, *SHARED, *more, "distributed.processes=2"]
    command.append(f"distributed.coordinator={coordinator}")
    processes = [
        subprocess.Popen(
            [*command, f"distributed.process={i}", f"hydra.run.dir={folder / str(i)}"],
            env=os.environ | {"JAX_NUM_CPU_DEVICES": "1"},
        )
        for i in range(2)
    ]
    try:
        if interrupted:
            until = time.monotonic() + 200
            while not (folder / "0" / "checkpoints" / "2").exists() and time.monotonic() < until:
                time.sleep(0.01)
            processes[1].terminate()
        return [process.wait(timeout=300) for process in processes]
    finally:
        for process in processes:
            process.kill()


def test_a_process_that_is_not_the_first_computes_the_same_and_writes_nothing(
    once: Once, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = once("over", lambda folder: run(config_of(*TINY), folder))
    monkeypatch.setattr(jax, "process_index", lambda: 1)
    summary = run(config_of(*TINY), tmp_path / "beside")
    assert not list(tmp_path.iterdir())
    np.testing.assert_array_equal(summary["scores"], load_run(alone).summary["scores"])


@pytest.mark.thorough
@pytest.mark.parametrize("shard_models", ["false", "true"])
def test_two_processes_equal_one(tmp_path: Path, shard_models: str) -> None:
    run(config_of(*SHARED, "training.rounds=2", "devices=1"), tmp_path / "alone")
    given = "training.rounds=2", f"shard_models={shard_models}"
    assert two_processes(tmp_path, *given) == [0, 0]
    assert not list((tmp_path / "1").glob("*"))  # the first writes for all
    one, two = (load_run(tmp_path / name) for name in ("alone", "0"))
    np.testing.assert_allclose(two.data.phi, one.data.phi, atol=1e-6)
    np.testing.assert_allclose(two.data.lcv, one.data.lcv, atol=1e-6)
    assert "2 of them" in two.summary["device"]


@pytest.mark.thorough
@pytest.mark.parametrize("shard_models", ["false", "true"])
def test_two_processes_go_on_together(tmp_path: Path, shard_models: str) -> None:
    """Wherever the signal comes: both end after the same round."""
    many = ["training.rounds=400", "checkpoint.every=2"]
    run(config_of(*SHARED, *many, "devices=1"), tmp_path / "alone")
    many.append(f"shard_models={shard_models}")
    assert two_processes(tmp_path, *many, interrupted=True) == [75, 75]
    assert load_run(tmp_path / "0").summary["status"] == "interrupted"
    assert two_processes(tmp_path, *many, "resume=auto") == [0, 0]
    one, two = (load_run(tmp_path / name) for name in ("alone", "0"))
    assert two.summary["resumed_after_round"] >= 2
    assert (two.summary["status"], two.summary["rounds"]) == ("finished", 400)
    np.testing.assert_allclose(two.data.lcv[:3], one.data.lcv[:3], atol=1e-6)


def told_by(code: str, *arguments: str) -> str:
    """What a new process prints, in which nobody has chosen how many devices a CPU has."""
    environment = {k: v for k, v in os.environ.items() if k != "JAX_NUM_CPU_DEVICES"}
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True
    ).stdout


def cores() -> int:
    found = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return min(found or 1, MAX_CORES)


def test_a_cpu_is_divided_once_and_any_number_taken_later() -> None:
    # As jobs of a sweep do that run one after another in a process.
    code = "from trip_jax.learning.devices import available; "
    code += "print(len(available(1)), len(available()), len(available(1)))"
    assert told_by(code).split() == ["1", str(cores()), "1"]


@pytest.mark.thorough
def test_a_run_from_python_works_on_all_cores(tmp_path: Path) -> None:
    code = "import sys; from pathlib import Path; from trip_jax.run import run; "
    code += "from experiments.harness.kept_runs import compose_config; "
    code += "config = compose_config('vs_shapley', sys.argv[2:]); "
    code += "print(run(config, Path(sys.argv[1]))['devices'])"
    more = "n_clients=5", "model=mlp", "training.rounds=1"
    told = told_by(code, str(tmp_path / "run"), *SHARED, *more)
    assert int(told.splitlines()[-1]) == cores()
