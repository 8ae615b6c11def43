"""Eight nodes on this machine learn to read digits, without a server and without a coordinator.

    python -m examples.p2p [--nodes 8] [--rounds 3] [--model torch] [--out DIR] [--seed 0]
        [--equivocator node3] [--patience 60]

Each is a process of its own that trains, sends its models to its neighbours on a circle and signed
reports from neighbour to neighbour to all, over TCP on 127.0.0.1. One is malicious: in round 2 it
tells half of its neighbours another report than the others. In the end every honest node must have
the same contributions, bit for bit, and hold the proof of what the malicious one did. Where
trip-jax is installed, the simulator must find the same contributions from the same models. The exit
code says whether all this is so. The example needs trip-node[sign] alone; the digits are those that
scikit-learn embeds where it is installed, and else images that are made up on the spot.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np

from examples.p2p.learners import LEARNERS
from examples.p2p.peer import Settings
from trip_node.node.admission import KEYS, Federation
from trip_node.node.gossip import verify_proof
from trip_node.node.signing import Signer
from trip_node.settings import require
from trip_node.settings.errors import InvalidSetting

ROOT = Path(__file__).parents[2]
EQUIVOCATES_IN = 2
TOLERANCE = 2e-5
"""Of contributions in nats: PyTorch, NumPy and XLA round float32 each in its own way."""


def main(arguments: Sequence[str] | None = None) -> int:
    """0 where all is as it must be, 1 where it is not, 2 for a wrong argument, 130 for Ctrl-C."""
    asked = _parser().parse_args(arguments)
    try:
        return _run(asked)
    except InvalidSetting as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return 130


def _parser() -> argparse.ArgumentParser:
    about, _, _ = str(__doc__).partition("\n\n")
    parser = argparse.ArgumentParser(prog="python -m examples.p2p", description=about)
    add: Any = parser.add_argument
    add("--nodes", type=int, default=8, help="processes, 5 to 32")
    add("--rounds", type=int, default=3, help="at least 2")
    add("--model", choices=sorted(LEARNERS), help="what is trained; torch if it is installed")
    add("--out", type=Path, help="a new directory; a temporary one if not given")
    add("--seed", type=int, default=0)
    add("--equivocator", default="node3", help="the malicious node; '' for none")
    add("--patience", type=float, default=60, help="seconds that a node waits for anything")
    return parser


def _run(asked: argparse.Namespace) -> int:
    began = time.perf_counter()
    require(5 <= asked.nodes <= 32, f"--nodes must lie between 5 and 32, not {asked.nodes}.")
    require(EQUIVOCATES_IN <= asked.rounds <= 100, "--rounds must lie between 2 and 100.")
    require(asked.seed >= 0, f"--seed must be at least 0, not {asked.seed}.")
    require(asked.patience > 0, f"--patience must be above 0, not {asked.patience}.")
    model = asked.model or ("torch" if find_spec("torch") else "numpy")
    require(model != "torch" or find_spec("torch") is not None, "PyTorch is not installed.")
    names = [f"node{i}" for i in range(asked.nodes)]
    require(
        asked.equivocator in ("", *names),
        f"--equivocator must be one of {names[0]} to {names[-1]}, or empty.",
    )
    folder = asked.out or Path(mkdtemp(prefix="p2p_"))
    require(not folder.exists() or not any(folder.iterdir()), f"{folder} is not empty.")
    circle = neighbours_on_circle(asked.nodes)
    data = digits(asked.nodes, asked.seed)
    settings = Settings(
        asked.rounds,
        asked.seed,
        model,
        asked.patience,
        sizes={name: len(one["labels"]) for name, one in zip(names, data, strict=True)},
        neighbours={names[i]: [names[j] for j in nearby] for i, nearby in enumerate(circle)},
        equivocator=asked.equivocator,
        equivocates_in=EQUIVOCATES_IN,
    )
    prepare(folder, settings, data)
    print(f"{asked.nodes} processes, {model}, {asked.rounds} rounds, in {folder}", flush=True)
    with running(folder, names) as processes:
        failed = wait_for(processes, asked.patience * (asked.rounds + 4))
    for name in failed:
        print(f"{name} failed: see {folder / name / 'log.txt'}")
    if failed:
        return 1
    print(f"all are done after {time.perf_counter() - began:.1f} s", flush=True)
    return _judge(folder, settings, circle, data)


def neighbours_on_circle(n: int) -> list[list[int]]:
    """The two nearest of n nodes on either side of each, by number."""
    return [sorted((i + step) % n for step in (-2, -1, 1, 2)) for i in range(n)]


def digits(n: int, seed: int) -> list[dict[str, np.ndarray]]:
    """Images of digits, more to later nodes, and a test set that all share."""
    x, y = _images()
    order = np.random.default_rng(seed).permutation(len(y))
    x, y = (x[order] / 16).astype(np.float32), y[order].astype(np.int64)
    test = {"test_images": x[:300], "test_labels": y[:300]}
    share = np.cumsum(np.arange(2, n + 2))
    cuts = 300 + (len(y) - 300) * share[:-1] // share[-1]
    parts = zip(np.split(x, [300, *cuts])[1:], np.split(y, [300, *cuts])[1:], strict=True)
    return [{"images": images, "labels": labels} | test for images, labels in parts]


def _images() -> tuple[np.ndarray, np.ndarray]:
    """Images of 64 numbers from 0 to 16, scikit-learn's or made up, and the digits they show."""
    if find_spec("sklearn"):
        from sklearn.datasets import load_digits

        x, y = load_digits(return_X_y=True)
        return np.asarray(x), np.asarray(y)
    rng = np.random.default_rng(0)
    y = np.arange(1797) % 10
    x = rng.uniform(0, 16, (10, 64))[y] + rng.normal(0, 6, (len(y), 64))
    return x.clip(0, 16), y


def prepare(folder: Path, settings: Settings, data: list[dict[str, np.ndarray]]) -> None:
    """What nodes read: all the public keys, each its own private key and data."""
    clients = {}
    for name, own in zip(settings.neighbours, data, strict=True):
        (folder / name).mkdir(parents=True)
        clients[name] = Signer.at(folder / name / "key").public
        np.savez(folder / name / "data.npz", allow_pickle=False, **own)
    keys = {"schema": KEYS, "federation": "examples.p2p", "clients": clients}
    (folder / "keys.json").write_text(json.dumps(keys))
    (folder / "federation.json").write_text(json.dumps(asdict(settings)))


@contextmanager
def running(folder: Path, names: list[str]) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """Nodes at work, none of which is left behind."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    processes: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for name in names:
            command = [sys.executable, "-m", "examples.p2p.peer", str(folder.resolve()), name]
            with (folder / name / "log.txt").open("wb") as log:
                processes[name] = subprocess.Popen(
                    command, cwd=ROOT, env=environment, stdout=log, stderr=log
                )
        yield processes
    finally:
        for process in processes.values():
            process.terminate()
        for process in processes.values():
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def wait_for(processes: dict[str, subprocess.Popen[bytes]], seconds: float) -> list[str]:
    """Who does not end in time, or not well."""
    until = time.monotonic() + seconds
    failed = []
    for name, process in processes.items():
        try:
            code = process.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            code = None
        if code != 0:
            failed.append(name)
    return failed


def _judge(
    folder: Path, settings: Settings, circle: list[list[int]], data: list[dict[str, np.ndarray]]
) -> int:
    """Compare what nodes found with each other and with the simulator, and say it."""
    names = [*settings.neighbours]
    honest = [name for name in names if name != settings.equivocator]
    found = {name: json.loads((folder / name / "phi.json").read_text()) for name in honest}
    order = [found[honest[0]]["names"].index(name) for name in names]
    phis = {name: np.array(one["phi"])[np.ix_(order, order)] for name, one in found.items()}
    same = len({phi.tobytes() for phi in phis.values()}) == 1
    whole = all(all(one["whole"]) for one in found.values())
    federation = Federation.read(folder / "keys.json")
    expected = [(EQUIVOCATES_IN, settings.equivocator)] * bool(settings.equivocator)
    proved = {
        name: [verify_proof(one, federation) for one in json.loads(text)]
        for name in honest
        if (text := (folder / name / "equivocations.json").read_text())
    }
    phi = phis[honest[0]]
    scores = phi.mean(axis=0)
    print("\nnode   examples  contribution to all models, on average")
    for name, score in zip(names, scores, strict=True):
        lies = "  equivocated" * (name == settings.equivocator)
        print(f"{name:6} {settings.sizes[name]:8}  {score:.4f}{lies}")
    sent = sum(one["bytes_sent"] for one in found.values()) / len(found)
    verdicts = {
        "no node had to leave a neighbour out, whose model was late (raise --patience) or of no "
        "use": not any(one["left_out"] for one in found.values()),
        f"all {len(honest)} honest nodes have the same contributions, bit for bit": same,
        "each knows the whole causal past of all rows": whole,
        "each holds the proof of the equivocation, and of nothing else": all(
            one == expected for one in proved.values()
        ),
    }
    if find_spec("jax"):
        left_out = [(round - 1, names.index(who)) for round, who in expected]
        simulated = _simulated(folder, settings, circle, data, left_out)
        difference = float(np.abs(phi - simulated).max())
        said = f"the simulator's differ by {difference:.1e}, at most {TOLERANCE:.0e}"
        verdicts[said] = difference <= TOLERANCE
    print(f"\nan honest node sent {sent / 1e3:,.0f} kB on average")
    for said, true in verdicts.items():
        print(f"{'yes' if true else 'NO '}  {said}")
    if not find_spec("jax"):
        print("--   trip-jax is not installed: the simulator's contributions are not compared")
    return 0 if all(verdicts.values()) else 1


def _simulated(
    folder: Path,
    settings: Settings,
    circle: list[list[int]],
    data: list[dict[str, np.ndarray]],
    left_out: list[tuple[int, int]],
) -> np.ndarray:
    """Contributions [n, n] as the simulator finds them from the nodes' models.

    Args:
        left_out: (round from 0, node) whose report counts as none.
    """
    from examples.p2p.simulated import contributions

    models = [_models(folder / name) for name in settings.neighbours]
    before, after = (
        np.stack([one[when] for one in models], axis=1) for when in ("before", "after")
    )
    return contributions(settings.model, circle, data, before, after, left_out)


def _models(folder: Path) -> dict[str, np.ndarray]:
    with np.load(folder / "models.npz", allow_pickle=False) as models:
        return dict(models)


if __name__ == "__main__":
    sys.exit(main())
