"""Ten timings, in seconds of processors, as ratios to the stored ones (`speed_baseline.json`).

    python -m experiments.benchmarks.speed_ratios [--store]

Prints the medians. A ratio says something where processor, Python and packages are those of the
stored timings, which are printed; elsewhere store timings of an older version first (`--store`).
"""

import argparse
import json
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

from trip_jax import __version__

HERE = Path(__file__).parent
BASELINE = HERE / "speed_baseline.json"


def measured() -> dict[str, float]:
    """Measure each timing several times; the median seconds by name."""
    with TemporaryDirectory() as folder:
        found = Path(folder) / "found.json"
        asked = ["-m", "pytest", "-n", "0", "-q", "-p", "no:cacheprovider", "--benchmark-quiet"]
        timer = "--benchmark-timer=experiments.benchmarks.speed_figures.cpu_seconds"
        command = [sys.executable, *asked, timer, f"--benchmark-json={found}"]
        if code := subprocess.run([*command, str(HERE / "speed_figures.py")]).returncode:
            raise SystemExit(code)
        timed = json.loads(found.read_text())["benchmarks"]
    return {one["name"].removeprefix("test_"): one["stats"]["median"] for one in timed}


def machine() -> dict[str, str]:
    """The processor, cores and versions that timings depend on."""
    packages = {name: version(name) for name in ("jax", "numpy")} | {"trip-jax": __version__}
    return {"python": platform.python_version(), "machine": platform.machine(), **packages}


def table(now: Mapping[str, float], stored: Mapping[str, float]) -> str:
    """A line a timing: seconds now, stored, and their ratio."""
    lines = [f"{'timing':24} {'seconds':>10} {'stored':>10} {'ratio':>6}"]
    for name, seconds in now.items():
        before = stored.get(name)
        told = f"{before:10.4g} {seconds / before:6.2f}" if before else f"{'-':>10} {'-':>6}"
        lines.append(f"{name:24} {seconds:10.4g} {told}")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--store", action="store_true", help="keep these timings as the stored ones"
    )
    store = parser.parse_args(arguments).store
    stored = json.loads(BASELINE.read_text()) if BASELINE.exists() else {"seconds": {}}
    now = measured()
    print(f"stored with {stored.get('machine', 'nothing')}, now {machine()}")
    print(table(now, stored["seconds"]))
    if store:
        told = {"machine": machine(), "seconds": now}
        BASELINE.write_text(json.dumps(told, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
