"""A federation small enough to be followed by the oracle, and the command line."""

import gc
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import pytest
import xarray
from filelock import FileLock
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hypothesis import settings
from omegaconf import DictConfig, OmegaConf

import trip_jax.cli.run
from tests import reference as ref
from tests.stateful import centred_of, own_layers
from trip_jax import programs, topology
from trip_jax.cli.command import USER_ERRORS
from trip_jax.cli.effects import refuse_idle
from trip_jax.cli.messages import one_line
from trip_jax.config import Adversary, Config, Contribution, Defence, Training
from trip_jax.data.federation import ClientData
from trip_jax.learning.model import Model
from trip_jax.learning.models import mlp
from trip_jax.learning.privacy import NOISE, Gaussian
from trip_jax.learning.training import epoch_order, round_keys
from trip_jax.protocol.algorithm import step
from trip_jax.protocol.compression import Compressed, LowRank, Quantised, RandomK, TopK
from trip_jax.protocol.fakes import FAKES
from trip_jax.protocol.state import Record, State
from trip_jax.protocol.weighing import ByOwn, ByPhi
from trip_jax.results import figures
from trip_jax.runs.launch import run as carry_out
from trip_jax.runs.prepare import prepare
from trip_jax.runs.schema import CONF, config_from, register
from trip_jax.settings import LISTENERS
from trip_jax.simulation import Simulation
from trip_jax.simulation.observer import Observer

# Compilation takes most of the tests' time: programs are kept for other tests, in all of pytest's
# processes, and for the commands that they start; and compiled with little effort, as they run for
# a moment only.
if "TRIP_JAX_TEST_PROGRAMS" not in os.environ:  # set by the first of the processes
    _PROGRAMS = tempfile.TemporaryDirectory()
    os.environ["TRIP_JAX_TEST_PROGRAMS"] = _PROGRAMS.name
for name, value in (
    ("jax_compilation_cache_dir", os.environ["TRIP_JAX_TEST_PROGRAMS"]),
    ("jax_persistent_cache_min_compile_time_secs", 0),
    ("jax_persistent_cache_min_entry_size_bytes", -1),
    ("jax_disable_most_optimizations", True),
):
    jax.config.update(name, value)
    os.environ[name.upper()] = str(value)
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.2"  # commands keep fewer
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # commands compile modules once for all
jax.config.update("jax_num_cpu_devices", 4)  # commands that tests start take the cores there are

QUICK_TO_COMPILE = (
    "--xla_cpu_use_fusion_emitters=false",
    "--xla_cpu_parallel_codegen_split_count=1",
)
"""XLA's older emitters take half the time to compile, and one thread the least."""

MAX_MAPPINGS = 40_000
"""Beyond so many, compiled programs are dropped after a file: the next one may need the rest."""

settings.register_profile("usual", max_examples=25, deadline=None)
settings.register_profile("thorough", max_examples=500, deadline=None)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--thorough", action="store_true", help="whole tables, thirty kills, hundreds of examples"
    )


def pytest_collection_finish() -> None:
    gc.freeze()  # modules and tests stay
    programs.MAX_PROGRAMS = 4_000  # smaller ones than those of users


def pytest_xdist_auto_num_workers() -> int:
    """One for each core, virtual or not: more would compile more programs twice."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return cores or 1


def pytest_configure(config: pytest.Config) -> None:
    gc.set_threshold(300_000, 50, 100)  # tracing makes many objects, which stay
    thorough = config.getoption("thorough")
    settings.load_profile("thorough" if thorough else "usual")
    config.addinivalue_line("markers", "thorough: of make test-all alone")
    if not thorough and not hasattr(config, "workerinput"):  # other processes inherit them
        os.environ["XLA_FLAGS"] = " ".join([os.environ.get("XLA_FLAGS", ""), *known_flags(config)])


def known_flags(config: pytest.Config) -> list[str]:
    """Those of `QUICK_TO_COMPILE` that the installed jaxlib knows.

    XLA ends a process that gives it a flag it does not know, so that a process of its own tries
    each. What it finds is kept in pytest's cache for this version of jaxlib.
    """
    cache, key = getattr(config, "cache", None), f"xla_flags/{version('jaxlib')}"
    known = cache.get(key, None) if cache else None
    if known is None:
        start = [sys.executable, "-c", "import jax; jax.devices()"]
        tried = [
            subprocess.Popen(
                start, env={**os.environ, "XLA_FLAGS": flag}, stderr=subprocess.DEVNULL
            )
            for flag in QUICK_TO_COMPILE
        ]
        known = [flag for flag, one in zip(QUICK_TO_COMPILE, tried, strict=True) if one.wait() == 0]
        if cache:
            cache.set(key, known)
    return known


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("thorough"):
        rare = [item for item in items if item.get_closest_marker("thorough")]
        config.hook.pytest_deselected(items=rare)
        items[:] = [item for item in items if item not in rare]


def rarely(*values: Any) -> Any:
    """A case of a test that `make test-all` alone runs."""
    return pytest.param(*values, marks=pytest.mark.thorough)


@pytest.fixture
def caplog(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> pytest.LogCaptureFixture:
    """What a test logs, the service's lines too: Hydra's set-up of logging disables its logger."""
    monkeypatch.setattr(logging.getLogger("trip_node.service"), "disabled", False)
    return caplog


@pytest.fixture(scope="session")
def thorough(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("thorough"))


Once = Callable[[str, Callable[[Path], object]], Path]


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Once:
    """Fills a folder in one of pytest's processes for all of them, each of which has a copy."""

    def copy_of(name: str, fill: Callable[[Path], object]) -> Path:
        shared = Path(os.environ["TRIP_JAX_TEST_PROGRAMS"]) / "folders"
        shared.mkdir(exist_ok=True)
        with FileLock(shared / f"{name}.lock"):
            if not (shared / name).exists():
                fill(shared / f"{name}.unfinished")
                (shared / f"{name}.unfinished").rename(shared / name)
        return Path(shutil.copytree(shared / name, tmp_path_factory.mktemp("once") / name))

    return copy_of


@pytest.fixture(scope="module", autouse=True)
def few_mappings() -> Iterator[None]:
    """Each program takes 8 to 40 of the 65,530 memory mappings that Linux grants a process."""
    yield
    maps = Path("/proc/self/maps")
    if maps.exists() and maps.read_bytes().count(b"\n") > MAX_MAPPINGS:
        jax.clear_caches()


@pytest.fixture
def kept_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """No program is forgotten within a test that counts them.

    What such a test changes shows in programs that are its own: it has shapes that no other has.
    """
    monkeypatch.setattr(programs, "MAX_PROGRAMS", 10**6)


@pytest.fixture
def kept_namesakes() -> Iterator[None]:
    """Names that a test gives to objects of its own are new: no program of others is dropped."""
    before = LISTENERS[:]
    LISTENERS.remove(programs.forget_namesake)
    yield
    LISTENERS[:] = before


@pytest.fixture(scope="module")
def quick_figures() -> Iterator[None]:
    """Figures take as long as all else of a small run, and others test them."""

    def draw(_: xarray.Dataset, folder: Path, *__: object) -> None:
        folder.mkdir()
        (folder / "phi.png").touch()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "draw_all", draw)
        yield


@pytest.fixture
def unrendered(monkeypatch: pytest.MonkeyPatch) -> None:
    unrender(monkeypatch)


def unrender(patch: pytest.MonkeyPatch) -> None:
    """Experiments draw figures and do not write them, which takes longest."""
    patch.setattr("experiments.harness.report.Report.save", lambda *_: None)


TINY = (
    "dataset=synthetic",
    "dataset.train_size=64",
    "dataset.test_size=40",
    "n_clients=3",
    "topology=star",
    "distribution=iid",
    "model.hidden=[8]",
    "training.rounds=1",
    "training.local_epochs=1",
    "devices=1",
)
"""The smallest federation of the command line, on one device: programs for several take longer to
compile."""


@pytest.fixture
def over(once: Once, quick_figures: None, tmp_path: Path) -> Path:
    """The smallest run, which is over and which a test may change."""
    kept = once("over", lambda folder: carry_out(config_of(*TINY), folder))
    return Path(shutil.copytree(kept, tmp_path / "run"))


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """The only line on standard error."""
        (line,) = self.err.splitlines()
        assert line.startswith("error: ")
        assert "Traceback" not in self.out
        return line


Command = Callable[..., Outcome]


@pytest.fixture
def command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Iterator[Command]:
    """`python -m trip_jax.run` in this process, in an empty folder, without data or a network."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HYDRA_FULL_ERROR", "0")  # which `main` sets, and this resets
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "no_data"))
    monkeypatch.setenv("TRIP_JAX_CACHE", str(tmp_path / "no_cache"))
    monkeypatch.setenv("TRIP_JAX_TFDS_MIRROR", "http://127.0.0.1:9")
    # Hydra closes all handlers when it sets logging up, and with absl's what pytest captures.
    monkeypatch.setattr(logging, "_handlerList", [])
    handlers, level = logging.root.handlers[:], logging.root.level

    def run(*arguments: str) -> Outcome:
        GlobalHydra.instance().clear()
        monkeypatch.setattr(sys, "argv", ["run.py", *arguments])
        code = 0
        try:
            trip_jax.cli.run.main()
        except SystemExit as stop:
            assert isinstance(stop.code, int)
            code = stop.code
        return Outcome(code, *capsys.readouterr())

    yield run
    GlobalHydra.instance().clear()
    for handler in set(logging.root.handlers) - set(handlers):
        handler.close()
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)


def python(folder: Path, *arguments: str) -> Outcome:
    """Python in a process of its own, which shares compiled programs with this one.

    JAX tells programs apart by the number of devices that there are, too.
    """
    process = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={"JAX_NUM_CPU_DEVICES": str(len(jax.devices())), **os.environ},
        capture_output=True,
        text=True,
        timeout=300,
    )
    return Outcome(process.returncode, process.stdout, process.stderr)


@cache
def composed(*overrides: str) -> DictConfig:
    """What Hydra makes of overrides."""
    register()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return compose("config", list(overrides))


@cache
def config_of(*overrides: str) -> Config:
    """What the command line makes of overrides."""
    return config_from(composed(*overrides))


def tiny_config(*overrides: str) -> Config:
    """What the command line makes of the tiny federation with these settings.

    Hydra composes the same choices of groups once.
    """
    choices = [one for one in overrides if "." not in one.partition("=")[0]]
    values = [one.lstrip("+") for one in overrides if one not in choices]
    return config_from(OmegaConf.merge(composed(*TINY, *choices), OmegaConf.from_dotlist(values)))


def refusal(*overrides: str) -> str:
    """The sentence by which the command line refuses the tiny federation with these settings.

    `command` shows what a refused command leaves.
    """
    try:
        config = tiny_config(*overrides)
        refuse_idle(config, overrides, in_sweep=False)
        prepare(config)
    except USER_ERRORS as error:
        return one_line(error)
    raise AssertionError(f"{' '.join(overrides)} is taken")


SIZES = (12, 7, 16, 9, 20, 5)


def tiny_data(sizes: Sequence[int] = SIZES, n_test: int = 40, padding: int = 0) -> ClientData:
    """Three noisy 3x3 patterns; ragged clients, optionally padded beyond the largest."""
    rng = np.random.default_rng(0)
    patterns = rng.random((3, 3, 3, 1))

    def draw(count: int) -> tuple[np.ndarray, np.ndarray]:
        labels = rng.integers(0, 3, count)
        noise = rng.normal(0, 0.25, (count, 3, 3, 1))
        images = np.clip(patterns[labels] + noise, 0, 1).astype(np.float32)
        return images, labels.astype(np.int32)

    images, labels = draw(sum(sizes))
    test_images, test_labels = draw(n_test)
    examples = np.zeros((len(sizes), max(sizes) + padding), np.int32)
    order = rng.permutation(sum(sizes))
    for i, part in enumerate(np.split(order, np.cumsum(sizes)[:-1])):
        examples[i, : len(part)] = part
    return ClientData(
        jnp.asarray(images),
        jnp.asarray(labels),
        jnp.asarray(examples),
        jnp.asarray(sizes, jnp.int32),
        jnp.asarray(test_images),
        jnp.asarray(test_labels),
    )


def tiny(
    graphs: Any = None,
    *,
    data: ClientData | None = None,
    weights: str = "data_size",
    redraw_every: int = 1,
    training: Training | None = None,
    model: Model | None = None,
    present: np.ndarray | None = None,
    drop: float = 0.0,
    schedule: Callable[[topology.Topology], topology.Topology] | None = None,
    **settings: Any,
) -> Simulation:
    """Six clients with an MLP of 6 hidden units; two rounds of two epochs by default."""
    data = tiny_data() if data is None else data
    if graphs is None:
        graphs = nx.path_graph(len(data.sizes))
    usual = Training(rounds=2, local_epochs=2, batch_size=4, learning_rate=0.2, momentum=0.5)
    training = training or usual
    sizes = np.asarray(data.sizes)
    built = topology.build(graphs, sizes, weights=weights, redraw_every=redraw_every)
    events = topology.with_events(built, training.rounds, present=present, drop=drop, seed=1)
    return Simulation(
        model or mlp(3, (6,)),
        data,
        schedule(built) if schedule else events,
        training=training,
        **settings,
    )


class Hearing(Observer):
    """An observer whose methods are functions."""

    def __init__(self, **methods: Callable[..., object]):
        vars(self).update(methods)


def layers(simulation: Simulation, row: jax.Array) -> ref.Params:
    """A flat MLP as the oracle's list of (kernel, bias), after what centres its inputs, if any."""
    whole = simulation.learner.model.unravel(row)
    dense, mean = whole["params"], whole.get("statistics")
    return [(np.asarray(mean, float), np.zeros(0))] * (mean is not None) + [
        (np.asarray(dense[name]["kernel"], float), np.asarray(dense[name]["bias"], float))
        for name in sorted(dense)
    ]


@dataclass
class Trajectory:
    """The states and records of a run, stepped one round after another."""

    states: list[State]  # T + 1
    records: list[Record]  # T


def follow(simulation: Simulation) -> Trajectory:
    """Go through all rounds by the phases of a run, which federations share where they can."""
    trajectory = Trajectory([simulation.start()], [])
    programs = simulation.on_its_data(simulation.compile(trajectory.states[0]))
    for _ in range(simulation.training.rounds):
        state, record = step(programs, trajectory.states[-1])
        trajectory.states.append(state)
        trajectory.records.append(jax.tree.map(np.asarray, record))
    return trajectory


@dataclass
class OracleInputs:
    """A federation as the oracle takes it: the same data, graphs and draws."""

    theta: ref.Params
    clients: list[tuple[np.ndarray, np.ndarray]]
    test: tuple[np.ndarray, np.ndarray]
    neighbourhoods: list[list[dict[int, float]]]
    orders: list[list[list[np.ndarray]]]


def neighbourhoods_of(simulation: Simulation, t: int) -> topology.Neighbourhoods:
    """Those of a round in NumPy, which looks arrays of any shape up without a program."""
    here: topology.Topology = jax.tree.map(np.asarray, simulation.topology)
    return here.at(t)


def oracle_inputs(simulation: Simulation) -> OracleInputs:
    """What every function of the oracle needs."""
    data, training = simulation.data, simulation.training
    clients = []
    for row, size in zip(np.asarray(data.examples), np.asarray(data.sizes), strict=True):
        own = row[:size]
        clients.append((np.asarray(data.images, float)[own], np.asarray(data.labels)[own]))
    neighbourhoods, orders = [], []
    for t in range(training.rounds):
        here = neighbourhoods_of(simulation, t)
        neighbourhoods.append(
            [
                {int(j): float(w) for j, w, real in zip(*rows, strict=True) if real}
                for rows in zip(here.members, here.weights, here.mask, strict=True)
            ]
        )
        keys = round_keys(simulation.base_key, jnp.arange(simulation.n), t)
        orders.append(
            [
                orders_of(client_key, int(size), data.examples.shape[1], training)
                for client_key, size in zip(keys, data.sizes, strict=True)
            ]
        )
    test = np.asarray(data.test_images, float), np.asarray(data.test_labels)
    return OracleInputs(
        layers(simulation, simulation.learner.model.theta), clients, test, neighbourhoods, orders
    )


def orders_of(key: jax.Array, size: int, slots: int, training: Training) -> list[np.ndarray]:
    """The orders in which a client visits its examples in a round, cut where local steps end."""
    keys, visits = jax.random.split(key, training.local_epochs), size * training.local_epochs
    if training.local_steps is not None:
        passes, rest = divmod(training.local_steps, -(-size // training.batch_size))
        visits = passes * size + min(rest * training.batch_size, size)
        keys = jnp.stack([jax.random.fold_in(key, k) for k in range(passes + (rest > 0))])
    whole = [np.asarray(epoch_order(one, slots, jnp.int32(size)))[:size] for one in keys]
    return [order[: visits - k * size] for k, order in enumerate(whole)]


def local_of(training: Training) -> ref.Local | None:
    """How clients train by settings that the oracle's plain steps do not have."""
    changed = training.clip or training.proximal or training.weight_decay or training.rate
    if not changed and training.optimizer == "sgd" and not training.keeps_state:
        return None
    factors = {
        "constant": lambda over: 1.0,
        "linear": lambda over: 1 - over,
        "cosine": lambda over: (1 + float(np.cos(np.pi * over))) / 2,
    }
    return ref.Local(
        training.optimizer,  # type: ignore[arg-type]
        training.rounds,
        training.weight_decay,
        training.clip,
        training.proximal,
        factors[training.schedule],
        training.keeps_state,
    )


def away_of(simulation: Simulation) -> list[set[int]] | None:
    """Who is away in each round."""
    present = simulation.topology.present
    return None if present is None else [set(np.flatnonzero(~np.asarray(row))) for row in present]


def privacy_of(simulation: Simulation) -> ref.Privacy | None:
    """What leaves clients of their training, with the same draws."""
    mechanism = simulation.learner.mechanism
    if not isinstance(mechanism, Gaussian):
        return None

    def normal(i: int, t: int) -> ref.Params:
        (key,) = round_keys(simulation.base_key, jnp.array([i]), t)
        theta = simulation.learner.model.theta
        return layers(simulation, jax.random.normal(jax.random.fold_in(key, NOISE), theta.shape))

    return ref.Privacy(mechanism.clip, mechanism.noise, normal)


def oracle(
    simulation: Simulation, trajectory: Trajectory, utility: ref.Utility = "loss"
) -> ref.TripShapley:
    """Algorithm 1 by the oracle on the same data, with the same draws."""
    inputs = oracle_inputs(simulation)
    return ref.trip_shapley(
        inputs.theta,
        inputs.clients,
        inputs.test,
        inputs.neighbourhoods,
        inputs.orders,
        utility=utility,
        privacy=privacy_of(simulation),
        away=away_of(simulation),
        **oracle_rules(simulation, trajectory),
    )


def oracle_rules(simulation: Simulation, trajectory: Trajectory) -> dict[str, Any]:
    """What the oracle is told of training, liars, defences, channel and trust."""
    training = simulation.training
    adversary: Adversary = simulation.adversary
    defence: Defence = simulation.defence
    contribution: Contribution = simulation.contribution

    def fake(i: int, t: int) -> ref.Params:
        before = trajectory.states[t].models[i : i + 1]
        keys = round_keys(simulation.schedule.key, jnp.array([i]), t)
        fakes = FAKES[adversary.fake](before, keys, jnp.zeros(1), simulation.learner)
        return layers(simulation, fakes[0])

    def uniform(j: int, t: int, part: int) -> ref.Params:
        here = simulation.schedule.at(jnp.int32(t))
        theta = simulation.learner.model.theta
        return layers(simulation, jax.random.uniform(here.keys_beside(1 + part)[j], theta.shape))

    channel = None
    if isinstance(compressed := simulation.rules.channel, Compressed):
        kinds = {TopK: "top_k", RandomK: "random_k", Quantised: "quantised", LowRank: "low_rank"}
        channel = ref.Channel(
            kinds[type(compressed.compressor)],  # type: ignore[arg-type, index]
            uniform,
            **vars(compressed.compressor),
            error_feedback=compressed.error_feedback,
            learning=compressed.learning,
        )
    trust = None
    if isinstance(weigh := simulation.rules.weigh, ByPhi):
        kind: Any = "own" if isinstance(weigh, ByOwn) else "phi"
        trust = ref.Trust(kind, **vars(weigh))
    return {
        "batch_size": training.batch_size,
        "learning_rate": training.learning_rate,
        "momentum": training.momentum,
        "local": centred_of(simulation) or local_of(training),
        "own": own_layers(simulation),
        "normalization": contribution.normalization,
        "liars": [int(i) for i in simulation.liars],
        "fake": fake,
        "lie_models": "d1" in adversary.kind,
        "amount": adversary.amount if "d2" in adversary.kind else 0.0,
        "lower_others": adversary.lower_others,
        "collude": adversary.collude,
        "v_threshold": defence.v_threshold if defence.c1 else None,
        "lam": defence.penalty if defence.c2 else None,
        "threshold": defence.distance if defence.c2 else None,
        "thresholding": defence.thresholding,
        "channel": channel,
        "trust": trust,
    }
