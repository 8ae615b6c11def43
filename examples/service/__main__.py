"""A node that trains beside others on a circle and reports to the coordinator's service.

    python -m examples.service keys --nodes 8 --folder keys
    trip-node coordinate --listen 127.0.0.1:8000 --state state --keys keys/keys.json
    python -m examples.service node --name node0 --nodes 8 --keys keys --models models \\
        --address http://127.0.0.1:8000

Each of the nodes is such a process. It writes its models into a folder that all share, reads its
two neighbours' from there, and sends signed reports. `deploy/compose.yaml` starts eight of them in
containers. trip-node[serve] is all that they need; more data belong to later nodes.
"""

import argparse
import io
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from examples.p2p.__main__ import digits, neighbours_on_circle
from examples.p2p.learners import SoftmaxRegression, Vector
from trip_node.node import LocalEvaluator
from trip_node.node.admission import KEYS
from trip_node.node.durable import create
from trip_node.node.outbox import Outbox
from trip_node.node.signing import Signer

FEDERATION = "examples.service"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="examples.service", description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(required=True)
    keys = commands.add_parser("keys", help="make all nodes' keys and the file of keys")
    keys.add_argument("--folder", type=Path, required=True)
    keys.set_defaults(run=make_keys)
    node = commands.add_parser("node", help="train, exchange and report")
    node.add_argument("--name", required=True, help="node0, node1, ...")
    node.add_argument("--keys", type=Path, required=True, help="the folder that `keys` made")
    node.add_argument("--models", type=Path, required=True, help="folder that all nodes share")
    node.add_argument("--address", required=True, help="of the service")
    node.add_argument("--rounds", type=int, default=5)
    node.add_argument("--patience", type=float, default=120, help="seconds to wait for others")
    node.set_defaults(run=take_part)
    for one in (keys, node):
        one.add_argument("--nodes", type=int, default=8)
    asked = parser.parse_args(arguments)
    run: Callable[[argparse.Namespace], None] = asked.run
    run(asked)
    return 0


def make_keys(asked: argparse.Namespace) -> None:
    """Private keys, and the file of keys that the service reads; those that are there stay."""
    asked.folder.mkdir(parents=True, exist_ok=True)
    names = [f"node{i}" for i in range(asked.nodes)]
    clients = {name: Signer.at(asked.folder / f"{name}.key").public for name in names}
    about = {"schema": KEYS, "federation": FEDERATION, "clients": clients}
    (asked.folder / "keys.json").write_text(json.dumps(about, indent=1))


def take_part(asked: argparse.Namespace) -> None:
    """Take part in all rounds as one node."""
    i = int(asked.name.removeprefix("node"))
    data = digits(asked.nodes, seed=0)
    learner, rng = SoftmaxRegression(data[i]), np.random.default_rng(i)
    members = [i, *neighbours_on_circle(asked.nodes)[i]]
    weights = {f"node{j}": float(len(data[j]["labels"])) for j in members}
    evaluator = LocalEvaluator(lambda model: -learner.loss(model[0]), asked.name, FEDERATION)
    outbox = Outbox(
        asked.models / f"outbox-{asked.name}", Signer.at(asked.keys / f"{asked.name}.key")
    )
    theta = learner.start()
    for number in range(1, asked.rounds + 1):
        own = {"before": theta, "after": learner.train(theta, rng)}
        for when, model in own.items():
            publish(asked.models / f"{number}-{asked.name}-{when}.npy", model)
        models = {
            when: {
                name: [received(asked.models / f"{number}-{name}-{when}.npy", asked.patience)]
                for name in weights
            }
            for when in own
        }
        report = evaluator.lcv(models["before"], models["after"], weights, round=number)
        outbox.keep(report)
        send(outbox, asked.address, asked.patience)
        shares = np.array(list(weights.values())) / sum(weights.values())
        theta = (shares @ np.stack([model for (model,) in models["after"].values()])).astype(
            np.float32
        )
        print(f"{asked.name} round {number}: loss {learner.loss(theta):.3f}", flush=True)


def publish(path: Path, model: Vector) -> None:
    """Write a model so that whoever sees the file finds it whole."""
    content = io.BytesIO()
    np.save(content, model, allow_pickle=False)
    create(path, content.getvalue())


def received(path: Path, patience: float) -> Vector:
    """A model from the shared folder, once it is there; raises TimeoutError."""
    until = time.monotonic() + patience
    while not path.exists():
        if time.monotonic() > until:
            raise TimeoutError(f"{path} did not come within {patience:g} s")
        time.sleep(0.05)
    return np.asarray(np.load(path, allow_pickle=False))


def send(outbox: Outbox, address: str, patience: float) -> None:
    """Send what is kept, again and again while the service does not answer."""
    until = time.monotonic() + patience
    while True:
        try:
            return outbox.send_all(address)
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.5)


if __name__ == "__main__":
    raise SystemExit(main())
