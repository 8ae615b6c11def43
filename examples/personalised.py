"""Six clinics learn one network together and keep heads of their own: what did each contribute?

    python -m examples.personalised

trains twice: all parameters mixed, and with the last layer of each clinic its own. The patients are
made up: all clinics see the same six findings, but each grades them on a scale of its own, so that
no common last layer fits. Easton grades at random, and Afton has few patients. A minute on two
cores at most.
"""

from collections.abc import Sequence

import networkx as nx
import numpy as np

import trip_jax as tj

PATIENTS = {"Afton": 40, "Boyle": 240, "Clare": 240, "Derry": 240, "Easton": 240, "Finch": 240}
RANDOM = "Easton"
"""The clinic whose grades say nothing."""

FINDINGS, GRADES = 6, 4
SETTINGS = {"all mixed": None, "own heads": "Dense_1"}
"""What stays a clinic's own, as `training.own`; the last layer is called Dense_1."""


def draw(rng: np.random.Generator, clinic: str, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Findings [count, 6] of patients and their grades [count], on the clinic's scale."""
    findings = rng.normal(size=(count, FINDINGS)).astype(np.float32)
    lungs, heart = findings[:, 0] * findings[:, 1] > 0, findings[:, 2] + findings[:, 3] > 0
    illness = 2 * lungs + heart
    scale = np.roll(np.arange(GRADES), list(PATIENTS).index(clinic))
    return findings, rng.integers(0, GRADES, count) if clinic == RANDOM else scale[illness]


def federation_of(own: str | None, rounds: int, seed: int = 0) -> tj.Simulation:
    """All clinics with each other, each judged by the grades of 100 patients of its own."""
    rng = np.random.default_rng(seed)
    learned = {clinic: draw(rng, clinic, count) for clinic, count in PATIENTS.items()}
    judged = {clinic: draw(rng, clinic, 100) for clinic in PATIENTS}
    data = tj.ClientData.of_clients(learned, judged)
    return tj.Simulation(
        tj.mlp(GRADES, hidden=(32,)),
        data,
        tj.topology.build(nx.complete_graph(list(PATIENTS)), data.sizes),
        training=tj.Training(rounds=rounds, local_epochs=3, learning_rate=0.1, own=own),
        contribution=tj.Contribution(utility="loss", normalization="efficient"),
    )


def main(rounds: int = 15, names: Sequence[str] = tuple(SETTINGS)) -> dict[str, tj.Result]:
    """Train with and without heads of their own, and print accuracies and scores."""
    results = {name: federation_of(SETTINGS[name], rounds).run() for name in names}
    print("clinic  patients" + "".join(f"  {name:>21}" for name in results))
    print(" " * 16 + "        accuracy  score" * len(results))
    for i, (clinic, count) in enumerate(PATIENTS.items()):
        told = [(one.accuracy[-1, i], one.scores[i]) for one in results.values()]
        print(f"{clinic:<6}  {count:>8}" + "".join(f"  {a:>14.2f}  {s:>5.2f}" for a, s in told))
    return results


if __name__ == "__main__":
    main()
