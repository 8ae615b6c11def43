"""Clients that come and go, and messages that are lost: the graphs of what really is exchanged.

Events are drawn before the first round. A round then has a graph of its own, of the arcs over which
messages arrive between clients that are there, and weights of the graph that is left: Eqs. 2 to 5,
re-execution and all else are those of a federation whose graph changes. Who is away has itself as
its whole neighbourhood, and does not train.
"""

import re
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool

from trip_jax.settings import LARGEST, Kinds, choice, measured, require
from trip_jax.settings.brief import Brief
from trip_jax.settings.declared import check_types
from trip_jax.settings.field_texts import with_field_texts
from trip_jax.settings.idle import chosen_from, read_by_kind
from trip_jax.settings.names import number_of
from trip_jax.settings.text_files import lines_of
from trip_jax.topology.graphs import Neighbourhoods, Topology

Presence = Callable[["Participation", int, int, int], Bool[np.ndarray, "T n"]]

PARTICIPATIONS: Kinds[Presence] = Kinds("participation.kind")
"""`(settings, rounds, n, seed)` -> who is there in each round [T, n]."""


@with_field_texts
@dataclass(frozen=True, repr=False)
class Participation(Brief):
    """Which clients take part in which rounds, as settings."""

    kind: str = chosen_from(PARTICIPATIONS, "always")  # what decides who is there
    # bernoulli: that a client is there, in each round anew
    probability: float = measured(read_by_kind(0.8), "probability")
    # trace: lines "client first last", the rounds in which it is there
    file: str | None = read_by_kind(None)
    # events: "join CLIENT ROUND" and "leave CLIENT ROUND"
    events: tuple[str, ...] = read_by_kind(())
    names: ClassVar[Sequence[str] | None] = None  # of the clients, see `among`

    def __post_init__(self) -> None:
        check_types("participation", self)
        choice("participation.kind", self.kind, tuple(PARTICIPATIONS))
        require(
            0 < self.probability <= 1,
            f"participation.probability must be above 0 and at most 1, not {self.probability}.",
        )
        require(
            (self.kind == "trace") == (self.file is not None),
            "participation.file must name the trace when participation=trace, and only then.",
        )
        require(
            (self.kind == "events") == bool(self.events),
            "participation.events must list events when participation=events, and only then.",
        )

    def among(self, names: Sequence[str] | None) -> "Participation":
        """These settings for clients with these names, in their order; None: clients 0..n-1."""
        other = copy(self)
        object.__setattr__(other, "names", names)
        return other

    def present(self, rounds: int, n: int, seed: int) -> Bool[np.ndarray, "T n"] | None:
        """Who takes part in each round; None if everyone always does.

        Raises:
            InvalidSetting: a trace or an event that can't be read, or names no client or round.
        """
        there = PARTICIPATIONS[self.kind](self, rounds, n, seed)
        return None if there.all() else there


@PARTICIPATIONS("always", reads=())
def always(settings: Participation, rounds: int, n: int, seed: int) -> np.ndarray:
    """All clients take part in all rounds."""
    return np.ones((rounds, n), bool)


@PARTICIPATIONS("bernoulli", reads=("probability",))
def bernoulli(settings: Participation, rounds: int, n: int, seed: int) -> np.ndarray:
    """Rounds are drawn one after another, so that more of them leave the first as they are."""
    rng = np.random.default_rng([seed, 9])
    return rng.random((rounds, n)) < settings.probability


@PARTICIPATIONS("trace", reads=("file",))
def trace(settings: Participation, rounds: int, n: int, seed: int) -> np.ndarray:
    """A client without a line in the file takes part in every round."""
    named, present = set(), np.zeros((rounds, n), bool)
    for where, line in lines_of("participation.file", str(settings.file)):
        match = re.fullmatch(r"\s*(\S|\S.*\S)\s+(\d+)\s+(\d+|-)\s*", line)
        require(
            match is not None,
            f"{where} must be 'client first last', rounds from 1, last or - for the end.",
        )
        assert match is not None  # for the type checker
        client, first = number_of(where, match[1], n, settings.names), _round(match[2], where)
        last = rounds if match[3] == "-" else _round(match[3], where)
        present[first - 1 : last, client] = True
        named.add(client)
    present[:, [client for client in range(n) if client not in named]] = True
    return present


@PARTICIPATIONS("events", reads=("events",))
def events(settings: Participation, rounds: int, n: int, seed: int) -> np.ndarray:
    """Who joins is away before, if it has not left; later events of a client overrule earlier."""
    found = []
    for event in settings.events:
        match = re.fullmatch(r"(join|leave) (\S|\S.*\S) (\d+)", event)
        require(
            match is not None,
            "participation.events must be of the form 'join CLIENT ROUND' or 'leave CLIENT ROUND', "
            f"not {event!r}.",
        )
        assert match is not None  # for the type checker
        where = f"The event {event!r}"
        client = number_of(where, match[2], n, settings.names)
        found.append((_round(match[3], where), client, match[1] == "join"))
    there, seen = np.ones((rounds, n), bool), set()
    for first, client, joins in sorted(found):
        if joins and client not in seen:
            there[:, client] = False
        there[first - 1 :, client] = joins
        seen.add(client)
    return there


def _round(text: str, where: str) -> int:
    require(
        len(text) < 10 and 1 <= int(text) <= LARGEST,
        f"{where} names round {text}, but rounds count from 1.",
    )
    return int(text)


def with_events(
    topology: Topology,
    rounds: int,
    *,
    present: Bool[np.ndarray, "T n"] | None = None,
    drop: float = 0.0,
    seed: int = 0,
) -> Topology:
    """The topology of what is exchanged, a graph a round.

    Args:
        present: who takes part in each round; None: everyone.
        drop: the probability that a client does not get what another sends it in a round.
    """
    if present is None and not drop:
        return topology
    graphs = [_of_round(topology, t, present, drop, seed) for t in range(rounds)]
    stacked = jax.tree.map(lambda *each: jnp.stack(each), *graphs)
    there = None if present is None else jnp.asarray(present)
    return replace(topology, graphs=stacked, redraw_every=1, present=there, lossy=drop > 0)


def _of_round(
    topology: Topology, t: int, present: Bool[np.ndarray, "T n"] | None, drop: float, seed: int
) -> Neighbourhoods:
    nearby = topology.at(t)
    away = np.zeros(topology.n_clients, bool) if present is None else ~present[t]
    lost = np.random.default_rng([seed, 10, t]).random(nearby.mask.shape) < drop
    return left_over(topology, nearby, nearby.mask & ~(away[:, None] | away[nearby.members] | lost))


def left_over(topology: Topology, nearby: Neighbourhoods, left: Bool[Any, "n M"]) -> Neighbourhoods:
    """Neighbourhoods of the members that are left, and of each client itself."""
    left = left | nearby.itself
    rest = nearby.with_lost(nearby.mask & ~left)
    weights = topology.reweigh(nearby.members, left, nearby.itself, rest.weights)
    # Members that are left stand first, as everywhere; the others become padding.
    order = jnp.argsort(~left, axis=1, stable=True)
    in_order = partial(jnp.take_along_axis, indices=order, axis=1)
    members, mask, weights = map(in_order, (nearby.members, left, weights))
    itself = jnp.arange(topology.n_clients)[:, None]
    return Neighbourhoods(
        members=jnp.where(mask, members, itself),
        mask=mask,
        weights=jnp.where(mask, weights, 0),
        age=None if nearby.age is None else jnp.where(mask, in_order(nearby.age), 0),
    )
