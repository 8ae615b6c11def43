"""The sentences that a comparison of runs begins with: what differs, and what follows."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from trip_jax.settings.plurals import counted

if TYPE_CHECKING:
    from trip_jax.runs.pages.comparison import Comparison

MOST, LONGEST = 5, 40
"""How many settings, or values of one, are listed, and characters of the longest value."""


def finding(runs: "Comparison") -> str:
    """What differs between runs, and which are closest to the truth or else learned most."""
    if seeds := runs.settings.get("seed"):
        of_groups = {frozenset(seeds[k] for k in those) for those in runs.groups.values()}
        if len(of_groups) > 1:
            return (
                f"{_differences(runs)} What was run with other seeds had other data and other "
                "initial models, so that no setting can be called better."
            )
    return f"{_differences(runs)} {_closest(runs) or _learned(runs)}"


def drawn_anew(runs: "Comparison") -> str:
    """Why a number names another client in another run; "" where it names the same one."""
    if runs.same_clients:
        return ""
    if "seed" in runs.settings:
        return (
            "A client's data are drawn anew with each seed, so that one number names different "
            "clients: scores and rankings are compared between runs of the same seed alone, and "
            "scores are not averaged over seeds."
        )
    return (
        "The runs divide different data, so that one client is not the same in all of them: scores "
        "and rankings are compared between runs of the same clients alone, and are not averaged."
    )


def _differences(runs: "Comparison") -> str:
    settings = runs.settings
    if not settings:
        return "The settings of the runs are the same, as far as the runs kept them."
    if len(settings) > MOST:
        return f"The runs differ in {len(settings)} settings, which the first table lists."
    alone = " alone" * (len(settings) == 1)
    listed = ", ".join(f"{name}{_listed(values)}" for name, values in settings.items())
    return f"The runs differ in {listed}{alone}."


def _listed(values: Sequence[str]) -> str:
    different = list(dict.fromkeys(values))
    if len(different) > MOST or max(map(len, different)) > LONGEST:
        return ""
    return f" ({', '.join(different)})"


def _closest(runs: "Comparison") -> str:
    """Which setting's runs are closest to the truth; "" where none is held against it."""
    means = _means(runs, runs.distances)
    if not means:
        return ""
    (name, least), *others = sorted(means.items(), key=lambda one: one[1])
    equal = _means(runs, runs.distances_of_equal_parts).get(name, np.nan)
    beside = f"; that of equal parts for all clients is {equal:.4f}" * bool(np.isfinite(equal))
    if len(runs.groups) == 1:
        return f"Their mean cosine distance to the truth is {least:.4f}{beside}."
    following = f"; next is {others[0][0]}, at {others[0][1]:.4f}" if others else ""
    return (
        f"Closest to the truth is {name}, at a mean cosine distance of {least:.4f}"
        f"{following}{beside}."
    )


def _learned(runs: "Comparison") -> str:
    """Which setting's models are the most accurate, where no run is held against the truth."""
    accuracy = [float(run.data.accuracy[-1].mean()) for run in runs.runs]
    ordered = sorted(_means(runs, accuracy).items(), key=lambda one: -one[1])
    (best, most), (worst, least) = ordered[0], ordered[-1]
    if len(ordered) == 1:
        spread = 100 * float(np.std(accuracy, ddof=1))
        said = f"Their final accuracy is {100 * most:.1f} ± {spread:.1f} %."
    elif f"{most:.3f}" == f"{least:.3f}":
        said = f"Final accuracy is {100 * most:.1f} % in all of them."
    else:
        said = (
            f"{best} has the highest final accuracy, {100 * most:.1f} %, and {worst} the lowest, "
            f"{100 * least:.1f} %."
        )
    return f"{said} No run is held against the truth, so that none can be called closest to it."


def _means(runs: "Comparison", values: Sequence[float]) -> dict[str, float]:
    """The mean of a value over the runs of each setting, by the label of the setting.

    Settings without a finite value are left out.
    """
    names = [name for name in runs.settings if name != "seed"]
    found = {}
    for label, those in runs.groups.items():
        called = f"{names[0]}={label}" if len(names) == 1 else label
        if not label or len(called) > LONGEST:
            called = f"run {', '.join(str(k + 1) for k in those)}"
        held = np.array(values, float)[those]
        if np.isfinite(held).any():
            several = f" ({counted(len(those), 'run')})" * (len(those) > 1)
            found[called + several] = float(held[np.isfinite(held)].mean())
    return found
