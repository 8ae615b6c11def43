"""The wheels: they bring their files and run where there is no checkout."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from tests.conftest import Once
from trip_jax import __version__
from trip_node import __version__ as NODE_VERSION

REPOSITORY = Path(__file__).resolve().parents[1]
BACKEND = 77  # the least setuptools that pyproject.toml asks for


@pytest.fixture(scope="module")
def wheel(once: Once, tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = tmp_path_factory.mktemp("source")
    (path,) = once("wheel", lambda to: build(to, source, source)).iterdir()
    return path


@pytest.fixture(scope="module")
def node_wheel(once: Once, tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = tmp_path_factory.mktemp("source")
    (path,) = once("node_wheel", lambda to: build(to, source, source / "trip_node")).iterdir()
    return path


def build(to: Path, source: Path, project: Path) -> None:
    """Build a project in a copy of the repository, since a build leaves folders behind."""
    for name in ("trip_jax", "trip_node", "conf"):
        ignore = shutil.ignore_patterns("__pycache__", "*.egg-info", "build")
        shutil.copytree(REPOSITORY / name, source / name, symlinks=True, ignore=ignore)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, source)
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", str(to)]
    if int(version("setuptools").split(".")[0]) >= BACKEND:
        command.append("--no-build-isolation")
    built = subprocess.run([*command, str(project)], capture_output=True, text=True)
    if built.returncode and "setuptools" in built.stderr and "No matching" in built.stderr:
        pytest.skip(f"setuptools {BACKEND} or later is neither installed nor to be had")
    assert built.returncode == 0, built.stderr


@pytest.fixture(scope="module")
def site(once: Once, wheel: Path, node_wheel: Path) -> Path:
    """The wheels' contents installed on their own."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    command.append("--no-compile")  # most modules are not imported

    def install(folder: Path) -> None:
        subprocess.run([*command, "--target", str(folder), str(wheel), str(node_wheel)], check=True)

    return once("site", install)


def run(site: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Python in an empty folder, with the installed wheels before everything else."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_wheel_holds_every_configuration_file(wheel: Path) -> None:
    here = {f"trip_jax/conf/{p.relative_to(REPOSITORY / 'conf')}" for p in conf_files()}
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        assert {name for name in names if name.endswith(".yaml")} == here
        for path in conf_files():
            name = f"trip_jax/conf/{path.relative_to(REPOSITORY / 'conf')}"
            assert archive.read(name) == path.read_bytes()


@pytest.mark.parametrize("folder", ["trip_jax/runs/pages/web", "trip_jax/judge/data"])
def test_wheel_holds_what_pages_and_verdicts_are_made_of(wheel: Path, folder: str) -> None:
    with zipfile.ZipFile(wheel) as archive:
        for path in (REPOSITORY / folder).iterdir():
            assert archive.read(f"{folder}/{path.name}") == path.read_bytes()


def conf_files() -> list[Path]:
    return sorted((REPOSITORY / "conf").rglob("*.yaml"))


def test_wheel_holds_every_module_and_nothing_else(wheel: Path) -> None:
    here = {str(p.relative_to(REPOSITORY)) for p in (REPOSITORY / "trip_jax").rglob("*.py")}
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        assert {name for name in names if name.endswith(".py")} == here
        (entry,) = [name for name in names if name.endswith("entry_points.txt")]
        assert "trip-jax = trip_jax.cli.main:main" in archive.read(entry).decode()
        assert any(name.endswith("LICENSE") for name in names)
        assert "trip_jax/py.typed" in names
        (metadata,) = [name for name in names if name.endswith("METADATA")]
        assert f"\nVersion: {__version__}\n" in archive.read(metadata).decode()


def test_the_wheel_of_nodes_holds_every_file_and_needs_numpy_and_scipy(node_wheel: Path) -> None:
    package = REPOSITORY / "trip_node" / "src"
    here = {str(p.relative_to(package)) for p in (package / "trip_node").rglob("*") if p.is_file()}
    with zipfile.ZipFile(node_wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        assert names == {name for name in here if not name.endswith(".pyc")}
        (metadata,) = [name for name in archive.namelist() if name.endswith("METADATA")]
        lines = archive.read(metadata).decode().splitlines()
    always = [line for line in lines if line.startswith("Requires-Dist") and "extra" not in line]
    assert [re.findall(r"\w+", line)[2] for line in always] == ["numpy", "scipy"]


def test_the_simulator_wants_nodes_that_no_index_has() -> None:
    """A local label, which indexes refuse, keeps pip from taking a stranger's package."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    (asked,) = [one for one in project["dependencies"] if one.startswith("trip-node")]
    assert asked == f"trip-node=={NODE_VERSION}"
    public, _, label = NODE_VERSION.partition("+")
    assert public == __version__ and label


@pytest.mark.thorough
def test_installed_package_is_the_one_that_runs(site: Path, tmp_path: Path) -> None:
    """With the files that say what settings mean."""
    code = "from trip_jax.runs import schema; from trip_jax.node import report; "
    code += "print(schema.__file__, report.__file__, schema.CONF, sep='\\n'); "
    code += "from trip_jax.cli.main import main; main(['settings', 'topology'])"
    shown = run(site, tmp_path, "-c", code)
    assert shown.returncode == 0, shown.stderr
    *where, conf = shown.stdout.splitlines()[:3]
    assert all(Path(one).is_relative_to(site) for one in where)
    assert str(REPOSITORY / "conf") not in conf
    for words in ("client 0 is the hub", "topology.degree=4\n      neighbours of a client"):
        assert words in shown.stdout


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], (8, "digits", "sizes", "regular")),
        (["+experiment=ws100"], (100, "fashion_mnist", "iid", "watts_strogatz")),
    ],
)
def test_commands_compose_without_a_checkout(
    site: Path, tmp_path: Path, arguments: list[str], expected: tuple[int, str, str, str]
) -> None:
    shown = run(site, tmp_path, "-m", "trip_jax.run", *arguments, "--cfg", "job")
    assert shown.returncode == 0, shown.stderr
    config = OmegaConf.create(shown.stdout)
    kinds = (config.dataset.name, config.distribution.kind, config.topology.kind)
    assert (config.n_clients, *kinds) == expected
    assert not list(tmp_path.iterdir())
