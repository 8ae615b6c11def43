"""Programs of a round for accelerators, lowered where there is none; rounds that ask no host."""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import pytest
from jax.experimental import topologies
from jax.extend.core import ClosedJaxpr, Jaxpr
from jax.sharding import NamedSharding

from tests.conftest import rarely, tiny
from trip_jax import Adversary, ClientData, Contribution, Defence, Simulation, cnn, topology
from trip_jax.config import Training
from trip_jax.learning.learner import Learner
from trip_jax.learning.mesh import mesh_of, replicated, shapes_of
from trip_jax.protocol.algorithm import step
from trip_jax.protocol.reports import Reports
from trip_jax.simulation.beginning import evaluate, start

LIES = {"adversary": Adversary("d1d2", fraction=0.2), "defence": Defence(c1=True, c2=True)}
HOST = re.compile(r"callback|debug|infeed|outfeed|host|stablehlo\.(send|recv)", re.IGNORECASE)
"""What asks the host, in the names of operations and of what they call."""


def ws100(n: int, each: int = 4, n_test: int = 50, **settings: Any) -> Simulation:
    """The experiment's federation but for its data, which are of the same kind."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (max(each * n, n_test), 28, 28, 1)).astype(np.uint8)
    labels, examples = np.arange(len(images)) % 10, np.arange(each * n).reshape(n, each)
    test = images[:n_test], labels[:n_test]
    data = ClientData(images, labels, examples, np.full(n, each), *test)  # type: ignore[arg-type]
    graph = nx.connected_watts_strogatz_graph(n, 4, 0.1, seed=0)
    training = Training(rounds=1, local_epochs=3, learning_rate=0.01, momentum=0.9)
    return Simulation(
        cnn(10), data, topology.build(graph, np.full(n, each)), training=training, **settings
    )


def programs_of(simulation: Simulation) -> dict[str, tuple[Any, tuple[Any, ...]]]:
    """Those of a run, with what they are given: its start, the three of a round, and evaluation."""
    state = shapes_of(start, simulation.learner.mesh, *simulation._starting)
    unsent, reports = np.zeros(simulation.n, bool), Reports.none(simulation.schedule.arcs.slot.size)
    programs: Any = simulation.placement.programs
    told = state.phi, reports, state.round
    return {
        "start": (start, simulation._starting),
        "learn": (programs.learn, (*simulation.learning, state)),
        "assess": (programs.assess, (*simulation.assessing, state, state.models, unsent)),
        "coordinate": (programs.coordinate, (*simulation.coordinating, *told)),
        "evaluate": (evaluate, (simulation.learner, state.models)),
    }


def primitives(jaxpr: Jaxpr) -> Iterator[str]:
    """Those of a program and of all programs in it."""
    for equation in jaxpr.eqns:
        yield equation.primitive.name
        for inner in jax.tree.leaves(
            list(equation.params.values()), is_leaf=lambda x: isinstance(x, Jaxpr | ClosedJaxpr)
        ):
            if isinstance(inner, Jaxpr | ClosedJaxpr):
                yield from primitives(getattr(inner, "jaxpr", inner))


def asks_the_host(program: Any, platform: str) -> set[str]:
    """What in a program, lowered for a platform that need not be here, is done by the host."""
    text = program.lower(lowering_platforms=(platform,)).as_text()
    named = re.findall(r"stablehlo\.custom_call @\w+|stablehlo\.\w+", text)
    assert named
    return {name for name in {*named, *primitives(program.jaxpr.jaxpr)} if HOST.search(name)}


@pytest.mark.parametrize("platform", ["cuda", rarely("tpu")])
@pytest.mark.parametrize(
    ("n", "settings"),
    [
        (6, LIES),
        rarely(6, {"shard_models": True, "devices": jax.devices()[:2], **LIES}),
        rarely(100, {}),
        rarely(100, LIES),
        rarely(100, {"keep_phi": False, "precision": "bfloat16"}),
        rarely(12, {"contribution": Contribution(estimator="permutation", budget=64), **LIES}),
    ],
)
def test_every_program_of_ws100_lowers_for_accelerators_and_asks_no_host(
    monkeypatch: pytest.MonkeyPatch, n: int, settings: dict[str, Any], platform: str
) -> None:
    backend = {"cuda": "gpu"}.get(platform, platform)
    monkeypatch.setattr(jax, "default_backend", lambda: backend)  # that choices follow
    monkeypatch.setattr("trip_jax.simulation.simulation.require_precision", lambda *_: None)
    simulation = ws100(n, **settings)
    assert simulation.learner.client_batch == 128
    for name, (program, given) in programs_of(simulation).items():
        assert not asks_the_host(program.trace(*given), platform), name


@pytest.mark.thorough
def test_every_program_of_ws100_compiles_for_a_tpu_of_16_gib(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The experiment's own sizes; the compiler refuses what takes more than the device has."""
    pytest.importorskip("libtpu", reason="needs the compiler of TPUs: pip install libtpu")
    for name, value in (
        ("TPU_SKIP_MDS_QUERY", "1"),  # this is no TPU machine
        ("TPU_ACCELERATOR_TYPE", "v5litepod-4"),
        ("TPU_WORKER_HOSTNAMES", "localhost"),
    ):
        monkeypatch.setenv(name, value)
    tpu = topologies.get_topology_desc(platform="tpu", topology_name="v5e:2x2")
    mesh = mesh_of(tpu.devices[:1])
    monkeypatch.setattr(jax, "default_backend", lambda: "tpu")
    monkeypatch.setattr("trip_jax.simulation.simulation.require_precision", lambda *_: None)

    def there(one: Any) -> Any:
        """The same where it is on the TPU, as a shape."""
        if isinstance(one, Learner):
            return replace(jax.tree.map(there, one), mesh=mesh)
        if isinstance(one, NamedSharding):
            return replicated(mesh)
        if isinstance(one, jax.Array | np.ndarray | jax.ShapeDtypeStruct):
            return jax.ShapeDtypeStruct(one.shape, one.dtype, sharding=replicated(mesh))
        return one

    def special(one: Any) -> bool:
        return isinstance(one, Learner | NamedSharding)

    simulation = ws100(100, each=600, n_test=500)
    for program, given in programs_of(simulation).values():
        given = jax.tree.map(there, given, is_leaf=special)
        planned = program.trace(*given).lower().compile().memory_analysis()
        assert 0 < planned.temp_size_in_bytes + planned.argument_size_in_bytes < 14 * 2**30


def test_a_program_that_asks_the_host_is_found() -> None:
    def told(x: jax.Array) -> jax.Array:
        def body(_: Any, y: jax.Array) -> jax.Array:
            jax.debug.print("{}", y)
            return jax.pure_callback(np.sin, y, y)

        return jax.lax.fori_loop(0, 3, body, x)

    program = jax.jit(told).trace(jnp.zeros(3))
    found = asks_the_host(program, "cpu")
    assert found == {
        "debug_print",
        "pure_callback",
        "stablehlo.custom_call @xla_ffi_python_cpu_callback",
    }


@pytest.mark.parametrize("devices", [1, rarely(4)])
def test_nothing_is_carried_to_devices_within_a_round(devices: int) -> None:
    simulation = tiny(**LIES, devices=jax.devices()[:devices])
    state = simulation.start()
    programs = simulation.on_its_data(simulation.compile(state))
    with jax.transfer_guard("disallow"):
        state, record = step(programs, state)
        step(programs, state)
        with pytest.raises(Exception, match=r"Disallowed host-to-device transfer"):
            jax.jit(jnp.sin)(np.ones(3))
    assert record.adopted.shape == record.reported.shape
