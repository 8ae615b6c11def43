"""trip_node needs NumPy and SciPy, and nothing of the simulator."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import trip_node

ROOT = Path(trip_node.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
BASE = {*sys.stdlib_module_names, "numpy", "scipy", "trip_node"}
OPTIONAL = {"starlette", "uvicorn", "cryptography", "filelock", "threadpoolctl"}
OPTIONAL |= {"pyarrow", "psutil", "flwr"}
OF_EXTRAS = ("deployment/service", "deployment/answers", "deployment/listening", "node/flower")
OF_EXTRAS += ("deployment/connections", "deployment/application")
"""Modules that only whoever has installed their extra imports."""


def imported(path: Path, everywhere: bool) -> set[str]:
    """The packages that a file imports, when it is imported itself or also inside functions."""
    tree = ast.parse(path.read_text())
    found = set()
    for one in ast.walk(tree) if everywhere else tree.body:
        if isinstance(one, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in one.names}
        elif isinstance(one, ast.ImportFrom):
            assert one.level == 0, path
            found.add(str(one.module).partition(".")[0])
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_needs_numpy_and_scipy_and_nothing_of_the_simulator(path: Path) -> None:
    assert imported(path, everywhere=True) <= BASE | OPTIONAL
    of_extra = str(path.relative_to(ROOT).with_suffix("")) in OF_EXTRAS
    assert of_extra or imported(path, everywhere=False) <= BASE


def test_the_commands_run_without_what_is_optional(tmp_path: Path) -> None:
    """In a process that can import NumPy, SciPy and the standard library alone."""
    (tmp_path / "reports.csv").write_text(
        "round,client,member,weight,lcv\n1,a,a,1,0.5\n1,b,b,1,0.25\n1,b,a,1,0.5\n"
    )
    code = f"""
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        package = name.partition(".")[0]
        if package[0] != "_" and package not in {sorted(BASE)!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Blocked())
from trip_node.cli.main import main
for line in sys.argv[1:]:
    code = main(line.split())
sys.exit(code)
"""
    lines = [
        f"coordinate {tmp_path / 'reports.csv'} --out {tmp_path / 'out'} --c2",
        f"rewards {tmp_path / 'out'}",
        "--version",
    ]
    done = subprocess.run([sys.executable, "-c", code, *lines], capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    assert done.stdout.endswith(f"trip-node {trip_node.__version__}\n")
    assert (tmp_path / "out" / "rewards.csv").exists()
    lines = [f"coordinate --listen 127.0.0.1:0 --state {tmp_path} --keys x"]
    done = subprocess.run([sys.executable, "-c", code, *lines], capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "pip install 'trip-node[serve]'" in done.stderr
