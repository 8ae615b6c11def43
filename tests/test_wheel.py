"""The wheel: it brings its configuration files and runs where there is no checkout."""

import os
import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from tests.conftest import Once, rarely
from trip_jax import __version__

REPOSITORY = Path(__file__).resolve().parents[1]
BACKEND = 77  # the least setuptools that pyproject.toml asks for


@pytest.fixture(scope="module")
def wheel(once: Once, tmp_path_factory: pytest.TempPathFactory) -> Path:
    (path,) = once("wheel", lambda to: build(to, tmp_path_factory.mktemp("source"))).iterdir()
    return path


def build(to: Path, source: Path) -> None:
    """Built from a copy, since a build leaves folders behind."""
    for name in ("trip_jax", "conf"):
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(REPOSITORY / name, source / name, ignore=ignore)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, source)
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", str(to)]
    if int(version("setuptools").split(".")[0]) >= BACKEND:
        command.append("--no-build-isolation")
    built = subprocess.run([*command, str(source)], capture_output=True, text=True)
    if built.returncode and "setuptools" in built.stderr and "No matching" in built.stderr:
        pytest.skip(f"setuptools {BACKEND} or later is neither installed nor to be had")
    assert built.returncode == 0, built.stderr


@pytest.fixture(scope="module")
def site(once: Once, wheel: Path) -> Path:
    """The wheel's contents installed on their own."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]

    def install(folder: Path) -> None:
        subprocess.run([*command, "--target", str(folder), str(wheel)], check=True)

    return once("site", install)


def run(site: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Python in an empty folder, with the installed wheel before everything else."""
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


def test_wheel_holds_what_pages_are_made_of(wheel: Path) -> None:
    web = REPOSITORY / "trip_jax/runs/pages/web"
    with zipfile.ZipFile(wheel) as archive:
        for path in web.iterdir():
            assert archive.read(f"trip_jax/runs/pages/web/{path.name}") == path.read_bytes()


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


def test_installed_package_is_the_one_that_runs(site: Path, tmp_path: Path) -> None:
    code = "from trip_jax.runs import schema; print(schema.__file__, schema.CONF, sep='\\n')"
    shown = run(site, tmp_path, "-c", code)
    assert shown.returncode == 0, shown.stderr
    where, conf = shown.stdout.splitlines()
    assert Path(where).is_relative_to(site)
    assert str(REPOSITORY / "conf") not in conf


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        rarely([], (8, "digits", "sizes", "regular")),
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


def test_settings_have_their_meanings_without_a_checkout(site: Path, tmp_path: Path) -> None:
    shown = run(site, tmp_path, "-m", "trip_jax", "settings", "topology")
    assert shown.returncode == 0, shown.stderr
    for words in ("client 0 is the hub", "topology.degree=4\n      neighbours of a client"):
        assert words in shown.stdout
