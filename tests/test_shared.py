"""Modules of trip-node have their old names in trip_jax, and neither package needs too much."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import trip_jax
import trip_node
from trip_jax.shared import SHARED

ROOT = Path(trip_node.__file__).parent
NAMES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for path in ROOT.rglob("*.py")
)
UNDER_BOTH = [name for name in NAMES if f"{name}.".startswith(tuple(f"{one}." for one in SHARED))]
OF_THE_COMMAND_LINE = (
    *("hydra", "omegaconf", "tensorflow_datasets", "array_record", "requests", "PIL"),
    *("pyarrow", "h5netcdf", "h5py", "matplotlib", "tqdm"),
)


@pytest.mark.parametrize("name", UNDER_BOTH)
def test_a_module_is_the_same_under_both_names(name: str) -> None:
    if name.endswith("flower"):
        pytest.importorskip("flwr", reason="pip install trip-node[flower]")
    module = import_module(f"trip_node.{name}")
    assert import_module(f"trip_jax.{name}") is module
    assert module.__spec__ is not None and module.__spec__.name == f"trip_node.{name}"


def test_type_checkers_are_told_of_every_shared_module() -> None:
    folder = Path(trip_jax.__file__).parent
    stubs = {
        ".".join(path.relative_to(folder).with_suffix("").parts).removesuffix(".__init__"): path
        for path in folder.rglob("*.pyi")
        if "import *" in path.read_text()
    }
    assert sorted(stubs) == UNDER_BOTH
    for name, path in stubs.items():
        assert path.read_text() == f"from trip_node.{name} import *\n"
        assert not path.with_suffix(".py").exists()


def test_what_neither_package_has_is_not_found() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"trip_jax\.node\.nothing"):
        import_module("trip_jax.node.nothing")


BLOCKED = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in sys.argv[1:]:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocked())
"""
IN_PYTHON = """
import networkx as nx
import trip_jax as tj

for name in dir(tj):
    getattr(tj, name)
dataset = tj.load_dataset("digits")
federation = tj.distribute(dataset, n_clients=4, distribution="sizes")
graph = tj.topology.build(nx.cycle_graph(4), federation.data.sizes)
tj.Simulation(tj.mlp(), federation.data, graph)
"""
WITHOUT_JAX = """
import trip_jax.node, trip_jax.deployment.tracing, trip_jax.deployment.report_table
from trip_jax.settings.errors import InvalidSetting
"""


@pytest.mark.parametrize(
    ("code", "missing"),
    [(IN_PYTHON, OF_THE_COMMAND_LINE), (WITHOUT_JAX, ("jax", "flax", *OF_THE_COMMAND_LINE))],
    ids=["simulations in Python", "nodes and tables"],
)
def test_packages_that_it_does_not_use_may_be_missing(code: str, missing: tuple[str, ...]) -> None:
    command = [sys.executable, "-c", BLOCKED + code, *missing]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
