"""Six hospitals with names learn from a table: what did each contribute?

    python -m examples.hospitals [FOLDER]

writes a table of patients to FOLDER, outputs/hospitals by default, divides it by its column of
hospitals, and prints a score for each. The patients are made up: Harbour writes
down wrong outcomes for two in five of them, Lakeside has few, and all others are alike. Half a
minute on two cores.
"""

import csv
import sys
from pathlib import Path

import networkx as nx
import numpy as np

import trip_jax as tj

PATIENTS = {
    "Charité": 240,
    "Harbour": 240,
    "Hôpital Nord": 200,
    "Lakeside": 40,
    "Mayo": 260,
    "St. Mary's": 220,
}
WRONG = {"Harbour": 0.4}
"""The share of a hospital's patients whose outcome is written down wrongly."""


def write_table(path: Path, seed: int = 0) -> None:
    """A table of patients, one in a row: numbers, texts, the hospital and the outcome."""
    rng = np.random.default_rng(seed)
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["patient", "hospital", "age", "ward", "pressure", "smoker", "readmitted"])
        patient = 0
        for hospital, count in PATIENTS.items():
            for _ in range(count):
                age, pressure = rng.normal(62, 14), rng.normal(132, 18)
                ward = str(rng.choice(["surgery", "heart", "lungs"]))
                smoker = bool(rng.random() < 0.3)
                risk = (age - 62) / 14 + (pressure - 132) / 18 + 1.5 * smoker
                ill = bool(risk + {"surgery": -1, "heart": 1, "lungs": 0}[ward] > 0.4)
                ill ^= bool(rng.random() < WRONG.get(hospital, 0.03))
                told = f"{age:.0f}", ward, f"{pressure:.0f}", smoker, "yes" if ill else "no"
                rows.writerow([f"P{patient}", hospital, *told])
                patient += 1


def federation_of(path: Path, rounds: int) -> tj.Simulation:
    """All hospitals with each other, judged by the area under the ROC curve."""
    columns = tj.DatasetConfig(
        "file",
        path=str(path),
        label="readmitted",
        client="hospital",
        drop=("patient",),
        test_size=None,
    )
    shares = tj.distribute(tj.load_dataset(columns), len(PATIENTS), "natural")
    everyone = tj.topology.build(nx.complete_graph(list(PATIENTS)), shares.data.sizes)
    return tj.Simulation(
        tj.mlp(hidden=(16,)),
        shares.data,
        everyone,
        training=tj.Training(rounds=rounds, learning_rate=0.05),
        contribution=tj.Contribution(utility="auc", normalization="efficient"),
    )


def main(folder: Path, rounds: int = 10) -> tj.Result:
    """Write the table, learn from it and print what each hospital contributed."""
    folder.mkdir(parents=True, exist_ok=True)
    write_table(folder / "patients.csv")
    result = federation_of(folder / "patients.csv", rounds).run()
    assert result.names
    print("hospital        patients  score")
    for name, score in zip(result.names, result.scores, strict=True):
        print(f"{name:<14}  {PATIENTS[name]:>8}  {score:.3f}")
    return result


if __name__ == "__main__":
    main(Path(sys.argv[1] if sys.argv[1:] else "outputs/hospitals"))
