"""Models divided among simulated devices: what one device gives, with a part of what it holds."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import Hearing, config_of, rarely, tiny, tiny_data
from tests.test_devices import told_by
from trip_jax import Adversary, Contribution, Defence, InvalidSetting, load_run, topology
from trip_jax.learning.models import mlp
from trip_jax.protocol.round import Liars, Timetable
from trip_jax.protocol.shards import Shards, divide
from trip_jax.runs.launch import run
from trip_jax.runs.prepare import prepare
from trip_jax.simulation import Simulation
from trip_jax.simulation.history import Snapshot
from trip_jax.simulation.placement import Sharded

FOUR = jax.devices()[:4]
PARTS: dict[str, Any] = {"devices": FOUR, "shard_models": True}
WHOLE: dict[str, Any] = {"devices": FOUR}

CASES: list[Any] = [
    (
        FOUR,  # two clients each, and none on the last
        {
            "graphs": [nx.path_graph(6), nx.cycle_graph(6)],
            "adversary": Adversary("d1d2", 0.34, collude=True),
            "defence": Defence(c1=True, c2=True),
        },
    ),
    rarely(FOUR, {"adversary": "garbage", "defence": Defence(c1=True)}),
    rarely(
        FOUR[:3],
        {
            "graphs": nx.star_graph(5),
            "contribution": Contribution(estimator="kernelshap", budget=40),
        },
    ),
    rarely(
        FOUR,
        {"graphs": nx.star_graph(5), "contribution": Contribution("loss", method="second_order")},
    ),
    rarely(FOUR, {"privacy": "dp"}),
    rarely(FOUR[:2], {"graphs": nx.complete_graph(6)}),
    rarely(
        FOUR[:3], {"drop": 0.3, "present": np.array([[1, 1, 0, 1, 1, 1], [1, 0, 1, 1, 1, 0]]) > 0}
    ),
]


@pytest.mark.parametrize(("devices", "settings"), CASES)
def test_parts_equal_the_whole(devices: list[jax.Device], settings: dict[str, Any]) -> None:
    whole = tiny(**settings).run()
    parts = tiny(devices=devices, shard_models=True, **settings).run()
    np.testing.assert_array_equal(parts.models, whole.models)
    np.testing.assert_array_equal(parts.records.flagged, whole.records.flagged)
    np.testing.assert_array_equal(parts.records.filtered, whole.records.filtered)
    np.testing.assert_allclose(parts.phi, whole.phi, atol=1e-6)
    for found, expected in zip(
        jax.tree.leaves(parts.records), jax.tree.leaves(whole.records), strict=True
    ):
        np.testing.assert_allclose(found, expected, atol=1e-6)  # XLA rounds differently


def divided(graphs: Any, n: int, n_devices: int, liars: Any = ()) -> tuple[Timetable, Shards]:
    built = topology.build(graphs, np.ones(n))
    lying = jnp.isin(jnp.arange(n), jnp.asarray(liars))
    who = Liars(jnp.asarray(liars, jnp.int32), lying)
    timetable = Timetable(built, built.arcs(), work=None, liars=who, key=jax.random.key(0))
    return timetable, divide(timetable, n_devices)


@given(
    st.sampled_from([1, 5, 12]),
    st.sampled_from([1, 2, 5, 9]),
    st.floats(0, 1),
    st.booleans(),
    st.integers(0, 2**32 - 1),
)
def test_devices_get_what_their_clients_mix(
    n: int, n_devices: int, density: float, directed: bool, seed: int
) -> None:
    """By the numbers of clients, sent along as messages are."""
    rng = np.random.default_rng(seed)
    graphs = [nx.gnp_random_graph(n, density, seed=int(k), directed=directed) for k in range(2)]
    liars = np.flatnonzero(rng.random(n) < 0.3)
    timetable, shards = divided(graphs, n, n_devices, liars)
    share, part, whole = jax.tree.map(
        np.asarray,
        (shards.timetable.part, shards.timetable.topology.graphs, timetable.topology.graphs),
    )
    clients = np.asarray(share.clients)
    np.testing.assert_array_equal(clients.ravel()[shards.place], np.arange(n))
    assert sorted(clients[clients < n]) == list(range(n))
    for g in range(2):
        # Rows that a device has are its own, and by each step those of one other or of none.
        has = [[*own] for own in clients]
        for step, sends in zip(share.steps, share.sends, strict=True):
            sender = {other: one for one, other in step}
            assert len(sender) == len(step) == len(set(sender.values()))
            for d in range(n_devices):
                height = sends.shape[-1]
                has[d] += (
                    [*clients[sender[d]][sends[sender[d], g]]] if d in sender else [n] * height
                )
        for d, rows in enumerate(np.array(has)):
            mine = clients[d] < n
            mask = part.mask[d, g][mine]
            np.testing.assert_array_equal(mask, whole.mask[g][clients[d][mine]])
            np.testing.assert_array_equal(
                rows[part.members[d, g][mine]][mask], whole.members[g][clients[d][mine]][mask]
            )
            assert set(rows[share.altered[d, g][share.altered[d, g] < len(rows)]]) <= set(liars)
            used = np.unique(part.members[d, g][mine][mask])
            assert set(rows[used]) & set(liars) <= set(rows[np.flatnonzero(share.lying[d, g])])
            padding = part.members[d, g][~mine]
            assert (padding == np.flatnonzero(~mine)[:, None]).all()


def models_sent(program: Any, size: int) -> int:
    """Models of so many parameters that a device is sent in a compiled program."""
    shapes = re.findall(r"f32\[(\d+),(\d+)\]\S* collective-permute\(", program.as_text())
    return sum(int(rows) for rows, width in shapes if int(width) == size)


def ring_of_eight(n_devices: int) -> Simulation:
    """With models beside which all else is small."""
    return tiny(
        nx.cycle_graph(8),
        data=tiny_data((3, 4, 5, 3, 4, 5, 3, 4)),
        model=mlp(3, (1000,)),
        devices=FOUR[:n_devices],
        shard_models=True,
    )


@pytest.mark.thorough
@pytest.mark.parametrize("n_devices", [2, 4])
def test_a_device_holds_its_part_and_is_sent_what_it_mixes(n_devices: int) -> None:
    """Eight clients in a ring: two others' models, whatever the number of devices."""
    simulation = ring_of_eight(n_devices)
    state, size = simulation.start(), simulation.learner.model.theta.size
    assert {shard.data.shape for shard in state.models.addressable_shards} == {
        (8 // n_devices, size)
    }
    programs = simulation.compile(state)
    assert models_sent(programs.learn, size) == 2
    assert models_sent(programs.assess, size) == 4  # before training, and after it
    for program in (programs.learn, programs.assess):
        gathered = re.findall(r"(\S+) all-gather\(", program.as_text())
        assert not any(str(size) in shape for shape in gathered)
    trained = programs.learn(*simulation.learning, state).trained
    assert {shard.data.shape[0] for shard in trained.addressable_shards} == {8 // n_devices}


def test_a_game_that_clients_of_a_device_play_is_evaluated_once() -> None:
    divided = tiny(nx.complete_graph(6), devices=FOUR[:2], shard_models=True)
    assert divided.placement.coalitions.tolist() == [2 * 2**6]


N_MANY = 2048


def shuffled_grid() -> Any:
    grid = nx.convert_node_labels_to_integers(nx.grid_2d_graph(32, N_MANY // 32))
    order = np.random.default_rng(0).permutation(N_MANY).tolist()
    return nx.relabel_nodes(grid, dict(enumerate(order)))


@pytest.mark.parametrize(
    ("graph", "most"),
    [
        (lambda: nx.cycle_graph(N_MANY), [2, 2, 2, 2, 2]),
        (lambda: nx.watts_strogatz_graph(N_MANY, 4, 0.1, seed=0), [148, 112, 75, 43, 31]),
        (shuffled_grid, [64, 64, 64, 64, 64]),  # is put in order
        (lambda: nx.random_regular_graph(4, N_MANY, seed=0), [1075, 808, 525, 302, 169]),
    ],
)
def test_a_device_holds_one_part_of_many_and_is_sent_no_more_for_that(
    graph: Callable[[], Any], most: list[int]
) -> None:
    """Models held fall as one by the number of devices, and so do those sent where links lead
    anywhere and parts are small. A part of a ring has two ends, however small it is."""
    held, sent = [], []
    for n_devices in (4, 8, 16, 32, 64):
        share = divided(graph(), N_MANY, n_devices)[1].timetable.part
        held.append(share.clients.shape[1])
        sent.append(share.lying.shape[-1] - held[-1])
    assert held == [512, 256, 128, 64, 32] and all(np.array(sent) <= most), sent


@pytest.mark.thorough
@pytest.mark.parametrize("n_devices", [2, 4])
def test_bytes_of_a_device_fall_as_one_by_their_number(n_devices: int) -> None:
    """Of the programs that hold models, where these are nearly all that there is."""

    def of_each(count: int) -> list[int]:
        simulation = ring_of_eight(count)
        programs = simulation.compile(simulation.start())
        plans = [program.memory_analysis() for program in (programs.learn, programs.assess)]
        return [plan.argument_size_in_bytes + plan.output_size_in_bytes for plan in plans]

    for alone, part in zip(of_each(1), of_each(n_devices), strict=True):
        assert part == pytest.approx(alone / n_devices, rel=0.2)


@pytest.mark.parametrize(
    "settings",
    [
        {"channel": "top_k"},
        {"trust": "own"},
        {"contribution": Contribution(method="surrogate", budget=64)},
    ],
)
def test_what_needs_all_models_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidSetting, match="or shard_models=false"):
        tiny(devices=FOUR[:2], shard_models=True, **settings)


@pytest.mark.thorough
@pytest.mark.parametrize(("first", "then"), [(PARTS, WHOLE), (WHOLE, PARTS)])
def test_a_run_goes_on_however_its_models_were_divided(
    first: dict[str, Any], then: dict[str, Any]
) -> None:
    begun = tiny(**first)
    pasts: list[Snapshot] = []
    begun.run(Hearing(on_round=lambda past: pasts.append(past) or True))
    (past,) = pasts
    past = replace(past, state=begun.placement.collected(past.state))
    models = tiny(**then).run(past=past).models
    np.testing.assert_array_equal(np.asarray(models), tiny().run().models)


EIGHT_DEVICES = """
import jax
jax.config.update("jax_num_cpu_devices", 8)
import networkx as nx, numpy as np, trip_jax as tj

dataset = tj.load_dataset("digits")
federation = tj.distribute(dataset, n_clients=20, distribution="sizes")
graph = tj.topology.build(nx.watts_strogatz_graph(20, 4, 0.2, seed=1), federation.data.sizes)
model, training = tj.mlp(10, (8,)), tj.Training(rounds=2)
given = {"training": training, "adversary": "d1d2", "defence": tj.Defence(c1=True, c2=True)}
one, eight = (
    tj.Simulation(model, federation.data, graph, devices=devices, shard_models=True, **given).run()
    for devices in (jax.devices()[:1], jax.devices())
)
print(eight.n_devices, abs(eight.models - one.models).max(), abs(eight.phi - one.phi).max())
"""


@pytest.mark.thorough
def test_eight_devices_equal_one() -> None:
    n_devices, models, phi = told_by(EIGHT_DEVICES).split()
    assert int(n_devices) == 8 and float(models) < 1e-6 and float(phi) < 1e-5


def test_a_setting_divides_models() -> None:
    (simulation, _) = prepare(config_of(*SMALL, "devices=2", "shard_models=true"))
    assert isinstance(simulation.placement, Sharded)


SMALL = ("dataset=synthetic", "dataset.train_size=64", "dataset.test_size=40", "n_clients=5")
SMALL += ("model.hidden=[8]", "training.rounds=2")


@pytest.mark.thorough
def test_the_command_line_divides_models(tmp_path: Path) -> None:
    run(config_of(*SMALL, "devices=1"), tmp_path / "whole")
    run(config_of(*SMALL, "devices=2", "shard_models=true"), tmp_path / "parts")
    whole, parts = (load_run(tmp_path / name) for name in ("whole", "parts"))
    np.testing.assert_allclose(parts.data.phi, whole.data.phi, atol=1e-6)
    assert parts.summary["devices"] == 2
