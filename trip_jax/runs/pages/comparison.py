"""Runs side by side: their scores, how alike they rank clients, and which settings differ."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from trip_jax.results.labels import column, labels
from trip_jax.results.meaning import explain, unit
from trip_jax.runs.pages import WEB
from trip_jax.runs.pages.comparison_finding import drawn_anew, finding
from trip_jax.runs.pages.settings import settings_of, without_effect
from trip_jax.runs.reading import Run, existing, load_run
from trip_jax.settings.errors import InvalidSetting
from trip_jax.settings.names import order_of
from trip_node.deployment.scores import shares
from trip_node.pages.document import assemble, packed

if TYPE_CHECKING:
    import pandas

SCRIPTS = ("base.js", "saving.js", "charts.js", "comparison.js")

DRAWN_BY = ("seed", "n_clients", "dataset.name", "dataset.path", "distribution.kind")
"""Settings that decide which examples client k owns."""

EXPLAINED = {
    "data.sha256": "dataset.name",
    "topology.sha256": "topology.kind",
    "model.parameters": "model.kind",
}
"""What runs from Python say of their inputs, and the setting from whose section it follows."""


@dataclass(frozen=True)
class Comparison:
    """Runs that are over, in the order given."""

    folders: list[Path]
    runs: list[Run]

    @classmethod
    def of(cls, folders: Sequence[Path]) -> "Comparison":
        """Runs in directories, each of which is one or holds some, such as a sweep.

        Raises:
            InvalidSetting: there are fewer than two.
        """
        named: dict[Path, Path] = {}
        for run in (run for folder in folders for run in _runs_in(folder)):
            named.setdefault(run.resolve(), run)
        found = list(named.values())
        if len(found) < 2:
            raise InvalidSetting(f"{found[0]} is one run: name two at least to compare.")
        return cls(found, [load_run(folder) for folder in found])

    @cached_property
    def scores(self) -> list[np.ndarray]:
        """Each run's scores [n]; n may differ."""
        return [run.data.score.values.astype(float) for run in self.runs]

    @cached_property
    def clients(self) -> list[str]:
        """What the clients of all runs are called, each once, in their order."""
        called = {label for run in self.runs for label in labels(run.data)}
        return sorted(called, key=order_of)

    @cached_property
    def places(self) -> list[np.ndarray]:
        """The places of each run's clients in the list `clients`."""
        at = {label: k for k, label in enumerate(self.clients)}
        return [np.array([at[label] for label in labels(run.data)]) for run in self.runs]

    @cached_property
    def units(self) -> list[str]:
        """What the runs measure contributions in, each unit once."""
        return list(dict.fromkeys(unit(run.data.attrs) for run in self.runs))

    @cached_property
    def settings(self) -> dict[str, list[str]]:
        """What differs between the runs: a value a run, "–" where it has none.

        Settings without effect are left out, and what follows from other settings.
        """
        values = self._values
        if len(set(values.get("training.rounds", ()))) > 1:
            values = {name: those for name, those in values.items() if name != "rounds"}  # the same
        idle = set.intersection(*(without_effect(run.summary) for run in self.runs))
        differing = {
            name: those
            for name, those in values.items()
            if name not in idle and len(set(those)) > 1
        }
        return {
            name: those for name, those in differing.items() if not self._explained(name, those)
        }

    def _explained(self, name: str, those: list[str]) -> bool:
        """Whether other settings, which all runs have, say what this follows from."""

        def known(setting: str) -> bool:
            return "–" not in self._values.get(setting, ["–"])

        if name in EXPLAINED and known(EXPLAINED[name]):
            return True
        if name == "data.sha256" and known("distribution.kind"):  # of examples without a name
            drawn = self._drawn
            return len(set(zip(drawn, those, strict=True))) == len(set(drawn))
        return False

    @cached_property
    def _values(self) -> dict[str, list[str]]:
        """Every setting that a run has, status and rounds: a value a run, "–" where it has none."""
        of_runs = [
            dict(settings_of(run.summary))
            | {"status": run.summary.get("status", "finished"), "rounds": run.data.sizes["round"]}
            for run in self.runs
        ]
        names = dict.fromkeys(name for settings in of_runs for name in settings)
        return {name: [str(one.get(name, "–")) for one in of_runs] for name in names}

    @property
    def _drawn(self) -> list[tuple[str, ...]]:
        """What decides which examples the clients of each run own."""
        none = ["–"] * len(self.runs)
        return list(zip(*(self._values.get(name, none) for name in DRAWN_BY), strict=True))

    @cached_property
    def federations(self) -> list[tuple[Any, ...]]:
        """Equal for runs of the same clients: of the same names, or else of data drawn alike."""
        return [
            tuple(labels(run.data)) if run.names else (*drawn, run.data.sizes["client"])
            for run, drawn in zip(self.runs, self._drawn, strict=True)
        ]

    @property
    def same_clients(self) -> bool:
        """Whether a name or number is the same client in all runs that have it."""
        return len(set(self.federations)) == 1 or all(run.names for run in self.runs)

    @cached_property
    def groups(self) -> dict[str, list[int]]:
        """The runs of equal settings but for the seed, by the settings that tell them apart."""
        names = [name for name in self.settings if name != "seed"]
        found: dict[str, list[int]] = {}
        for k in range(len(self.runs)):
            values = [self.settings[name][k] for name in names]
            words = values if len(names) == 1 else map("=".join, zip(names, values, strict=True))
            found.setdefault(", ".join(words), []).append(k)
        return found

    @property
    def series(self) -> dict[str, list[int]]:
        """What is drawn side by side: groups of several runs of the same clients, else runs."""
        if self.same_clients and 1 < len(self.groups) < len(self.runs):
            return self.groups
        return {f"run {k + 1}": [k] for k in range(len(self.runs))}

    @cached_property
    def distances(self) -> list[float]:
        """Each run's mean cosine distance to its truth; NaN where it is held against none."""
        return self._of_truth("distance")

    @property
    def distances_of_equal_parts(self) -> list[float]:
        """The mean cosine distance of equal parts for all clients to each run's truth."""
        return self._of_truth("distance_of_equal_parts")

    def _of_truth(self, name: str) -> list[float]:
        of_runs = [run.summary.get("truth", {}).get(name) for run in self.runs]
        return [np.nan if one is None else float(one) for one in of_runs]

    @cached_property
    def correlation(self) -> np.ndarray:
        """Spearman's rank correlation between the runs' scores.

        It is NaN for runs of different clients, as those of different seeds are, or where all
        scores are equal.
        """
        from scipy.stats import rankdata

        ranks = [
            (federation, rankdata(score))
            for federation, score in zip(self.federations, self.scores, strict=True)
        ]
        return np.array(
            [
                [_pearson(one, other) if of == whose else np.nan for whose, other in ranks]
                for of, one in ranks
            ]
        )

    def table(self) -> "pandas.DataFrame":
        """A line for each run and client."""
        import pandas

        parts = []
        for k, (folder, run) in enumerate(zip(self.folders, self.runs, strict=True)):
            settings = {name: values[k] for name, values in self.settings.items()}
            lines: dict[str, Any] = {"run": k + 1, "folder": str(folder), **settings}
            lines |= {
                "final_accuracy": float(run.data.accuracy[-1].mean()),
                "client": column(run.data),
                "score": self.scores[k],
                "share": shares(self.scores[k]),
                "liar": run.data.liar.values.astype(bool),
            }
            if "true_score" in run.data:
                truth = run.data.true_score.values
                lines |= {"true_score": truth, "true_share": shares(truth)}
            lines |= {} if np.isnan(self.distances).all() else {"distance": self.distances[k]}
            parts.append(pandas.DataFrame(lines))
        return pandas.concat(parts, ignore_index=True)

    def page(self) -> str:
        """The page that compares runs, as HTML."""
        title = f"{len(self.runs)} runs compared"
        return assemble(title, "comparison.html", SCRIPTS, self._data(title), web=WEB)

    def _data(self, title: str) -> dict[str, Any]:
        notices = []
        if len(self.units) > 1:
            notices.append(
                f"The runs measure contributions differently ({'; '.join(self.units)}): compare "
                "shares and ranks, not scores."
            )
        if any(run.names for run in self.runs):
            if len({tuple(places) for places in self.places}) > 1:
                notices.append(
                    "The runs name different clients: a client's mean is over the runs that have "
                    "it."
                )
        elif len({run.data.sizes["client"] for run in self.runs}) > 1:
            notices.append(
                "The runs have different numbers of clients, so that a number may name different "
                "clients."
            )
        return {
            "title": title,
            "finding": finding(self),
            "drawn_anew": drawn_anew(self),
            "same_clients": self.same_clients,
            "notice": " ".join(notices),
            "unit": self.units[0] if len(self.units) == 1 else "",
            "meaning": self._meaning(),
            "settings": self.settings,
            "groups": _listed(self.groups),
            "series": _listed(self.series),
            "names": self.clients if any(run.names for run in self.runs) else None,
            "n": len(self.clients),
            "correlation": [[None if np.isnan(one) else float(one) for one in row]
                            for row in self.correlation],
            "runs": [
                {
                    "folder": str(folder),
                    "title": run.data.title,
                    "accuracy": {
                        "mean": float(run.data.accuracy[-1].mean()),
                        "std": float(run.data.accuracy[-1].std()),
                    },
                    "score": packed(score),
                    "truth": run.summary.get("truth"),
                    "places": places.tolist(),
                    "liars": places[run.data.liar.values.astype(bool)].tolist(),
                }
                for folder, run, score, places in zip(
                    self.folders, self.runs, self.scores, self.places, strict=True
                )
            ],
        }  # fmt: skip

    def _meaning(self) -> list[str]:
        """What the numbers mean, a paragraph each; one that is not of all runs names its own."""
        explanations = [explain(run.data.attrs) for run in self.runs]
        of: dict[str, list[int]] = {}
        for text, k in (
            (one[at], k) for at in range(len(explanations[0])) for k, one in enumerate(explanations)
        ):
            of.setdefault(text, []).append(k + 1)
        return [
            text
            if len(those) == len(explanations)
            else f"{'Run' if len(those) == 1 else 'Runs'} {', '.join(map(str, those))}: {text}"
            for text, those in of.items()
        ]


def _listed(groups: Mapping[str, Sequence[int]]) -> list[dict[str, Any]]:
    return [{"label": label, "runs": runs} for label, runs in groups.items()]


def _runs_in(folder: Path) -> list[Path]:
    if (existing(folder) / "summary.json").is_file():
        return [folder]
    found = [path.parent for path in folder.rglob("summary.json")]
    if not found:
        raise InvalidSetting(
            f"{folder} holds no finished run: name run directories, or one that holds some."
        )
    return sorted(found, key=_by_number)


def _by_number(path: Path) -> list[tuple[int, str]]:
    """An order in which 2 comes before 10."""
    return [(int(part or 0), rest) for part, rest in re.findall(r"(\d*)(\D*)", str(path))]


def _pearson(one: np.ndarray, other: np.ndarray) -> float:
    if not one.std() * other.std():
        return float("nan")
    return float(np.corrcoef(one, other)[0, 1])
