"""Robust aggregation under attacks on learning: what models and contributions are worth.

    python -m experiments.robust [scale=cpu] [dataset=digits] [model=mlp] [seed=0,1,2]
        [rule=weighted_mean,median,...] [attack=none,label_flips,...] [topology=regular]
        [distribution=iid] [samples=128] [borders=2] [out=DIR] [SETTING=VALUE ...]

One client of eight attacks what the others learn, under every rule by which they may mix. Measured
are the mean accuracy of honest clients' final models; the attacker's score and what an honest one
has on average, both by TRIP-Shapley and by the truth; and how far TRIP-Shapley and equal
contributions are from the truth. The truth is the Shapley value by re-execution under the same rule
and attack: a client that is in no coalition does not train, and an attacker then does not attack.
By accuracy throughout. Cells and what is kept: as experiments.vs_shapley.
"""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np
import pandas

from experiments.harness import report
from experiments.harness.command_line import run_as_command
from experiments.harness.kept_runs import Arrays
from experiments.paper.cells import COALITIONS, Cell, CellStudy
from trip_jax.judge.yardsticks import yardsticks
from trip_jax.learning.evaluation import ACCURACY
from trip_jax.protocol.aggregation import AGGREGATIONS, Aggregation
from trip_jax.protocol.attacks import ATTACKS

RULES = tuple(name for name in AGGREGATIONS if not Aggregation(name).build().keeps_sums)
NAMES = ("none", "label_flips", *ATTACKS)
FIXED = {
    "aggregation": "Rules are compared here: say rule={value}.",
    "aggregation.kind": "Rules are compared here: say rule={value}.",
    "adversary": "Attacks are compared here: say attack={value}.",
    "adversary.kind": "Attacks are compared here: say attack={value}.",
    "adversary.fraction": "One client attacks here: leave out adversary.fraction.",
}
ATTACKERS = (0,)


class RobustStudy(CellStudy):
    """Which rules and attacks are asked for."""

    def __init__(self, arguments: Sequence[str]):
        names = ("rule", "attack", *COALITIONS)
        super().__init__("robust", arguments, names=names, fixed=FIXED)
        self.rules = self.request.among("rule", RULES)
        self.attacks = self.request.among("attack", NAMES)


def robust(arguments: Sequence[str]) -> None:
    """Fill the matrix as far as it was asked for; one report a data set and model."""
    study = RobustStudy(arguments)
    (topology,), (distribution,) = study.topologies, study.distributions
    for dataset, model in study.reports():
        rows: list[dict[str, Any]] = []
        for rule, attack, seed in product(study.rules, study.attacks, study.seeds):
            given = f"topology={topology}", f"distribution={distribution}", f"aggregation={rule}"
            cell = study.cell(dataset, model, seed, *given, *_attack(attack))
            rows.append({"rule": rule, "attack": attack, "seed": seed, **measured(cell)})
            said = "accuracy {accuracy:.3f}, distance {distance:.3f}".format(**rows[-1])
            print(f"{rule}, {attack}, seed {seed}: {said}", flush=True)
        frame = pandas.DataFrame(rows)
        written, title = study.report(dataset, model), study.about(dataset, model)
        text = written.write(frame, "Robust rules under attack", title, *_sections(frame))
        print(f"{text}\nresults in {study.folder}")


def _attack(name: str) -> tuple[str, ...]:
    """The command-line settings of an attack, such as adversary=sign_flips."""
    if name == "none":
        return ()
    return f"adversary={name}", f"adversary.clients=[{','.join(map(str, ATTACKERS))}]"


def measured(cell: Cell) -> dict[str, float]:
    """What a federation learns, and what is told of its clients; without attacks all are honest."""
    run = cell.computed("run", lambda: _told(cell))
    truth = cell.decentralised()["values"][..., ACCURACY].astype(float)
    honest = np.setdiff1d(np.arange(cell.config.n_clients), ATTACKERS)
    phi = run["phi"].astype(float)
    found: dict[str, float] = {"accuracy": float(run["accuracy"][honest].mean())}
    for name, values in (("trip", phi), ("truth", truth)):
        scores = values[honest].mean(axis=0)  # to honest clients' models
        found |= {
            f"{name}_attacker": float(scores[list(ATTACKERS)].mean()),
            f"{name}_honest": float(scores[honest].mean()),
        }
    of_honest = yardsticks(phi[honest], truth[honest])
    found["equal"] = yardsticks(np.ones_like(phi[honest]), truth[honest])["distance"]
    return found | {name: of_honest[name] for name in ("distance", "spearman")}


def _told(cell: Cell) -> Arrays:
    """Contributions by TRIP-Shapley, and the accuracy of final models."""
    result = cell.simulation.run()
    phi, last = np.asarray(result.phi), result.records.utility[-1]
    return {"phi": phi, "accuracy": np.asarray(last)[:, ACCURACY]}


def _sections(frame: pandas.DataFrame) -> Iterator[str]:
    over = "mean ± standard deviation over seeds"
    yield f"Accuracy of honest clients, {over}:"
    yield report.markdown(_matrix(frame, "accuracy"))
    for name, said in (("trip", "TRIP-Shapley"), ("truth", "the truth")):
        yield (
            f"Score of client {ATTACKERS[0]}, who attacks unless nobody does, over the mean score "
            f"of the others, by {said}, {over}; 1 is a client like the others:"
        )
        relative = frame[f"{name}_attacker"] / frame[f"{name}_honest"]
        yield report.markdown(_matrix(frame.assign(relative=relative), "relative"))
    yield f"Cosine distance of TRIP-Shapley to the truth under the same rule, {over}:"
    yield report.markdown(_matrix(frame, "distance"))
    yield f"Cosine distance of equal contributions to it, {over}:"
    yield report.markdown(_matrix(frame, "equal"))
    yield f"Rank correlation of the two (Spearman), {over}:"
    yield report.markdown(_matrix(frame, "spearman"))


def _matrix(frame: pandas.DataFrame, name: str) -> Iterator[list[str]]:
    attacks = list(dict.fromkeys(frame.attack))
    yield ["rule", *attacks]
    for rule, rows in frame.groupby("rule", sort=False):
        by = rows.groupby("attack")[name]
        yield [str(rule), *(report.with_spread(by.get_group(attack)) for attack in attacks)]


if __name__ == "__main__":
    run_as_command(robust)
