"""Rules and methods that a federation can't follow together."""

from typing import Any

import jax

from trip_jax.attribution.replay import samples
from trip_jax.protocol.aggregation import WeightedMean
from trip_jax.protocol.methods.whole_run import Keeping, WholeRun
from trip_jax.protocol.reporting import require_for_broadcast
from trip_jax.protocol.rules import follows_the_graph, require_plain_exchange
from trip_jax.protocol.weighing import ByPhi
from trip_jax.settings import require


def require_that_fits(federation: Any) -> None:
    """Refuse rules that ask for what is not kept or not at hand, or that no method can follow.

    Args:
        federation: `Prepared`, but for where its models are.

    Raises:
        InvalidSetting: with what to set instead.
    """
    rules, topology, keeps_phi = federation.rules, federation.topology, federation.keeps_phi
    require(
        keeps_phi or not isinstance(rules.weigh, ByPhi),
        "Weights that follow contributions need all of them: set keep_phi=true or trust=none.",
    )
    if federation.broadcast:
        federation.broadcast.who_lies(federation.n, federation.seed)
        require_for_broadcast(rules, topology, keeps_phi)
    told = rules.contribute
    method = f"contribution.method={federation.contribution.method}"
    if federation.shards_models:
        plain = follows_the_graph(rules) and topology.wave is None
        require(
            plain and not isinstance(told, Keeping | WholeRun),
            "shard_models=true is for models that are exchanged as they are, by the weights of the "
            "graph, and contributions that are told in each round: set channel=none, trust=none, "
            "schedule=synchronous and contribution.method=trip, or shard_models=false.",
        )
    if not isinstance(told, Keeping | WholeRun):
        return
    if isinstance(told, WholeRun) and told.budget is not None:
        samples(federation.n, told.budget, setting="contribution.budget")
    require(keeps_phi, f"{method} tells phi as a whole: set keep_phi=true.")
    require_plain_exchange(rules, f"Runs with {method}")
    require(
        isinstance(rules.aggregate, WeightedMean),
        f"{method} follows models that are mixed linearly: set aggregation=weighted_mean.",
    )
    kept = told.method if isinstance(told, Keeping) else told
    of_models = not isinstance(kept, WholeRun) or kept.sees_models
    require(
        of_models or told is kept,
        f"{method} keeps what models say in the place of updates: choose another method, such as "
        "contribution.method=surrogate.",
    )
    require(
        topology.wave is None or topology.present is None or not of_models,
        f"{method} follows clients from round to round: set schedule=synchronous.",
    )
    defence = federation.defence
    honest = federation.adversary.kind == "none" and not (defence.c1 or defence.c2)
    require(honest, f"{method} is of honest federations: leave out adversary and defence.")
    alone = jax.process_count() == 1
    require(alone, f"{method} concludes in one process: leave out distributed.")
