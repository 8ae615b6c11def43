"""The report of a run: everything one can look at in one page, report.html."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np
import xarray

from trip_jax.config import Config, Defence
from trip_jax.protocol.methods.facts import TRIP
from trip_jax.results import meaning
from trip_jax.results.labels import labels, names_of
from trip_jax.results.layout import MAX_DETAILED, arcs_of, drawn_round, positions
from trip_jax.results.meaning import at_the_end, explain, unit
from trip_jax.results.propagation import retraced, shares
from trip_jax.results.scores import finding
from trip_jax.runs.held_truth import in_words
from trip_jax.runs.pages import WEB
from trip_jax.runs.pages.settings import settings_of
from trip_jax.settings.errors import InvalidSetting
from trip_jax.topology.files import GraphFile
from trip_node.pages.document import assemble, packed

MAX_NUMBERS = 78_000
"""Numbers of four bytes that go into a page, 416 kB in base64; its program takes 70 kB more.

What is one number of each client listed or round goes in always. Reported contributions with their
graphs, or else entries of phi, come next if there is room, and then single clients' accuracies.
"""

MAX_EVENTS = 8_000
"""Flags, refusals and losses that a page tells one by one; beyond, it counts them."""

MAX_CLIENTS, ENDS = 10_000, 500
"""Clients that a page lists; of more, so many with the highest and with the lowest scores."""

MAX_ARCS = 3_000
"""Arcs of a graph that go into a page without reports; beyond, its nodes alone are drawn."""

SCRIPTS = (
    "base.js",
    "saving.js",
    "propagation.js",
    "charts.js",
    "graph.js",
    "matrix.js",
    "client.js",
    "clients.js",
    "run.js",
)
REPORTS = ("Reports to the coordinator", "Reports between clients")
NEEDED = ("adopted", "flagged", "filtered", "level", "examples", "weights", "accuracy")


def run_page(run: xarray.Dataset, summary: Mapping[str, Any]) -> str:
    """The report of a run, as one HTML page.

    Args:
        run: results.nc.
        summary: summary.json.

    Raises:
        InvalidSetting: an older version wrote the run, without what the report shows.
    """
    if lacking := [name for name in NEEDED if name not in run]:
        raise InvalidSetting(
            f"results.nc lacks {lacking[0]}, since an older version wrote it: repeat the run to "
            "get a report."
        )
    if "unsent" not in run:  # older versions mixed every model
        run = run.assign(unsent=0 * run.flagged)
    data = page_data(run, summary)
    return assemble(f"{run.title} · report", "run.html", SCRIPTS, data, web=WEB)


def page_data(run: xarray.Dataset, summary: Mapping[str, Any]) -> dict[str, Any]:
    """The data of a run that its page shows, as JSON takes it."""
    n, rounds, listed = run.sizes["client"], run.sizes["round"], _listed(run)
    events = {name: run[name].values.astype(bool) for name in ("flagged", "unsent")}
    events["filtered"] = _filtered(run)
    n_events = sum(int(happened.sum()) for happened in events.values())
    single = n_events <= MAX_EVENTS
    left = MAX_NUMBERS - 6 * len(listed) - 7 * rounds - 2 * n_events * single
    needed = _needed(run)
    detail, reason = _detail(run, needed, left)
    if not single:
        reason += f" It counts the {n_events:,} flags, and does not mark them in the graph."
    of_client = run.isel(client=listed)
    data: dict[str, Any] = {
        "title": run.title,
        "finding": " ".join(filter(None, (finding(run), in_words(summary)))),
        "status": summary.get("status", "finished"),
        "message": summary.get("message", ""),
        "detail": detail,
        "reason": reason.strip(),
        "unit": unit(run.attrs),
        "meaning": explain(run.attrs),
        **_facts(run, summary),
        "costs": _costs(summary, meaning.reported_by(run.attrs)),
        "settings": settings_of(summary),
        "n": len(listed),
        "all": n,
        "clients": listed.tolist() if len(listed) < n else None,
        "names": labels(run)[listed].tolist() if names_of(run) else None,
        "total": float(run.score.values.sum(dtype=float)),
        "rounds": rounds,
        "score": packed(of_client.score.values),
        "score_error": packed(of_client.score_error.values) if "score_error" in run else None,
        "true_score": packed(of_client.true_score.values) if "true_score" in run else None,
        "true_total": float(run.true_score.values.sum()) if "true_score" in run else None,
        "liars": np.flatnonzero(of_client.liar.values).tolist(),
        "all_liars": int(run.liar.values.sum()),
        "examples": of_client.examples.values.tolist(),
        "level": packed(of_client.level.values),
        "level_name": run.level.attrs.get("long_name", "level"),
        "accuracy": _accuracy(run, listed, single=len(listed) * rounds <= left - needed[detail]),
        "initial": float(run.initial_accuracy) if "initial_accuracy" in run else None,
        "filtered_models": run.filtered.values.sum(axis=(1, 2)).tolist(),
    }
    data |= {name: _events(happened, listed, single) for name, happened in events.items()}
    if n <= MAX_DETAILED:
        data["drawn_round"] = drawn_round(run) + 1
        arcs = arcs_of(run, int(run.graph_of_round[drawn_round(run)]))
        data["positions"] = packed(positions(arcs, n))
        data["graphs"], data["graph_of_round"] = _graphs(run, every=detail == "rounds")
    if detail == "rounds":
        adopted = run.adopted.values
        masks = run["mask"].values[run.graph_of_round.values].astype(bool)
        data["adopted"] = packed(adopted[masks])
    elif detail == "last":
        data["phi"] = packed(run.phi.values)
    return data


def _listed(run: xarray.Dataset) -> np.ndarray:
    """The clients that the page lists, in ascending order, or from the highest score down."""
    n = run.sizes["client"]
    if n <= MAX_CLIENTS:
        return np.arange(n)
    order = np.argsort(-run.score.values, kind="stable")
    return np.concatenate([order[:ENDS], order[-ENDS:]])


def _detail(run: xarray.Dataset, needed: Mapping[str, float], left: float) -> tuple[str, str]:
    """How much of phi the page holds, and why not more.

    Args:
        needed: how many numbers each choice takes.
        left: how many numbers the page can still hold.
    """
    n = run.sizes["client"]
    if n > MAX_CLIENTS:
        return "scores", (
            f"This page lists the {ENDS} highest and the {ENDS} lowest scores of {n:,} clients; "
            "results.nc holds all."
        )
    if "phi" not in run:
        return "scores", (
            "This page shows final scores only: keep_phi=true keeps contributions to each model."
        )
    if needed["last"] > left:
        return "scores", (
            f"This page leaves out the {n * n:,} contributions of {n:,} clients to each other's "
            "models, which results.nc holds, and shows final scores."
        )
    if needed["rounds"] > left:
        reports = int(run["mask"].values[run.graph_of_round.values].sum())
        return "last", (
            f"This page leaves out the {reports:,} contributions that clients reported, which "
            "results.nc holds, and shows those to the final models."
        )
    if at_the_end(run.attrs):
        return "last", (
            "This page shows contributions to the final models only: this method tells them when "
            "the run is over."
        )
    if "sent_in_round" in run:
        return "last", (
            "A round is a wave here, in which not everyone trains. This page shows contributions "
            "to the final models only, since clients mix models of earlier waves, which "
            "sent_in_round in results.nc tells."
        )
    if not retraced(run):
        return "last", (
            "This page shows contributions to the final models only: a rule changed the weights "
            "of the rounds, and results.nc does not hold the changed ones."
        )
    return "rounds", ""


def _needed(run: xarray.Dataset) -> dict[str, float]:
    """Numbers that the page holds of phi, with the graphs that are drawn, by detail."""
    n, of_round = run.sizes["client"], run.graph_of_round.values
    arcs = run["mask"].values.sum(axis=(1, 2))  # of each graph; one takes six bytes
    first = 1.5 * min(arcs[of_round[drawn_round(run)]], MAX_ARCS) + 0.5 * n
    graphs = sum(1.5 * arcs[g] + 0.5 * n for g, _ in set(_graph_keys(run)))
    return {"scores": first, "last": n * n + first, "rounds": arcs[of_round].sum() + graphs}


def _graphs(run: xarray.Dataset, every: bool) -> tuple[list[dict[str, Any]], list[int]]:
    """The graphs and the index of each round's graph; a single graph unless `every`."""
    of_round = run.graph_of_round.values
    if not every:
        t = drawn_round(run)
        few = run["mask"].values[of_round[t]].sum() <= MAX_ARCS
        return ([_graph(run, t)] if few else []), [0] * len(of_round)
    graphs: dict[tuple[int, int], dict[str, Any]] = {}
    keys = _graph_keys(run)
    for t, key in enumerate(keys):
        if key not in graphs:
            graphs[key] = _graph(run, t)
    number = {key: at for at, key in enumerate(graphs)}
    return list(graphs.values()), [number[key] for key in keys]


def _graph_keys(run: xarray.Dataset) -> list[tuple[int, int]]:
    """What tells the graphs of rounds apart.

    A round in which models did not arrive has weights of its own, and so a graph of its own.
    """
    rounds = zip(run.graph_of_round.values, run.unsent.values, strict=True)
    return [(int(g), t if unsent.any() else -1) for t, (g, unsent) in enumerate(rounds)]


def _graph(run: xarray.Dataset, t: int) -> dict[str, Any]:
    """The neighbourhoods of round t: how many members a client has, who they are, their shares."""
    g = int(run.graph_of_round[t])
    mask = run["mask"].values[g].astype(bool)
    return {
        "count": packed(mask.sum(axis=1), "<u2"),
        "member": packed(run.members.values[g][mask], "<u2"),
        "share": packed(shares(run, t)[mask]),
    }


def _accuracy(run: xarray.Dataset, listed: np.ndarray, single: bool) -> dict[str, Any]:
    values = run.accuracy.values
    curves = {
        "mean": values.mean(axis=1),
        "std": values.std(axis=1),
        "min": values.min(axis=1),
        "max": values.max(axis=1),
    }
    if single:
        curves["clients"] = values[:, listed]
    return {name: packed(curve) for name, curve in curves.items()}


def _filtered(run: xarray.Dataset) -> np.ndarray:
    """Whether a receiver replaced a client's pre-training model [T, n]."""
    t, i, slot = np.nonzero(run.filtered.values)
    found = np.zeros((run.sizes["round"], run.sizes["client"]), bool)
    found[t, run.members.values[run.graph_of_round.values[t], i, slot]] = True
    return found


def _events(happened: np.ndarray, listed: np.ndarray, single: bool) -> dict[str, list[Any]]:
    """How often an event happened by round and by client and, if wanted, when to whom."""
    to_listed = happened[:, listed]
    return {
        "by_round": happened.sum(axis=1).tolist(),
        "by_client": to_listed.sum(axis=0).tolist(),
        "single": np.argwhere(to_listed).tolist() if single else [],  # (round from 0, client)
    }


ALWAYS_SHOWN = ("distribution", "topology", "model")
"""Sections whose kinds the head names also where they are the usual ones."""

LABELS = {"topology": "Graph"}


def _facts(run: xarray.Dataset, summary: Mapping[str, Any]) -> dict[str, list[list[str]]]:
    """The settings in words: `facts` for the page's head, and `usual` that have their defaults."""
    settings = dict(settings_of(summary))
    named = {"Data": "dataset.name", "Seed": "seed", "Weights": "topology.weights"}
    facts = [[label, settings[name]] for label, name in named.items() if name in settings]
    for section, usual in Config().kinds.items():
        kind = settings.get(f"{section}.kind")
        if kind is not None and (section in ALWAYS_SHOWN or kind != usual):
            facts.append([LABELS.get(section, section.capitalize()), kind])
    for graph in summary.get("graphs", ()):
        facts.append(["Graph file", str(GraphFile(**graph))])
    on = [
        field.name for field in fields(Defence) if settings.get(f"defence.{field.name}") == "true"
    ]
    said = [name.upper() if name in ("c1", "c2") else name for name in on]
    facts += [["Defence", " and ".join(said)]] if on else []
    if not settings and "seed" in summary:
        facts.append(["Seed", str(summary["seed"])])
    if "privacy_epsilon" in run.attrs:
        facts.append(["Guarantee", f"ε = {run.privacy_epsilon:.4g}, δ = {run.privacy_delta:g}"])
    method, reported_by = meaning.method(run.attrs), meaning.reported_by(run.attrs)
    scaled = "Normalisation" + " of reports" * (reported_by != method)
    facts += [["Method", method], ["Utility", run.contribution_utility]]
    facts.append([scaled, run.normalization])
    if method == TRIP:
        facts.append(["Semivalue", run.attrs.get("semivalue", "shapley")])
    default = Config()
    defaults = [
        ["Seed", str(default.seed)],
        ["Weights", default.topology.weights],
        ["Utility", default.contribution.utility],
        [scaled, "paper" if reported_by == TRIP else "efficient"],
        ["Semivalue", default.contribution.semivalue],
    ]
    return {
        "facts": [fact for fact in facts if fact not in defaults],
        "usual": [fact for fact in facts if fact in defaults],
    }


def _costs(summary: Mapping[str, Any], reported_by: str) -> list[list[str]]:
    rows = [
        [f"Seconds of {phase}", f"{seconds:,.1f}"]
        for phase, seconds in summary.get("seconds", {}).items()
    ]
    of_coalitions = reported_by == TRIP
    if costs := summary.get("costs"):
        sent, size, each = costs["models_sent"], costs["bytes_sent"], costs["client_and_round"]
        rows += [
            ["Models sent to learn", f"{sent['learning']:,}, {_megabytes(size['learning'])}"],
            [
                "Models sent to compute contributions",
                f"{sent['contributions']:,}, {_megabytes(size['contributions'])}",
            ],
            [REPORTS["broadcast" in summary], _megabytes(size["reports"])],
            [
                "Coalition models evaluated" if of_coalitions else "Models evaluated",
                f"{costs['coalitions_evaluated']:,}",
            ],
            ["Evaluations, a client and round", f"{each['evaluations']:,.1f}"],
            ["Time of a client's round, training alone = 1", f"{each['times_training']:,.2f}"],
        ]
    if broadcast := summary.get("broadcast"):
        rows += [
            ["Honest clients with the same contributions", f"{100 * broadcast['agree']:.0f} %"],
            ["Honest clients with those of all reports", f"{100 * broadcast['complete']:.0f} %"],
        ]
    rows += [
        [name.capitalize(), str(summary[name])] for name in ("device", "host") if name in summary
    ]
    return rows


def _megabytes(size: float) -> str:
    return f"{size / 1e6:,.1f} MB" if size >= 1e5 else f"{size / 1e3:,.1f} kB"
