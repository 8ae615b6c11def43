"""Checks that the rules and the contribution method of a federation fit together."""

import jax
import numpy as np

from trip_jax.attribution.replay import samples
from trip_jax.federation import Federation
from trip_jax.learning.flat_model import FlatModel
from trip_jax.learning.privacy import RECORDS
from trip_jax.learning.targets import CLASSES, Targets
from trip_jax.protocol.adversaries import FalsePredictions
from trip_jax.protocol.aggregation import AGGREGATIONS
from trip_jax.protocol.attacks import Attack, LabelFlips
from trip_jax.protocol.broadcast import Broadcast
from trip_jax.protocol.defences import FilterByAccuracy
from trip_jax.protocol.methods.facts import Sees
from trip_jax.protocol.methods.whole_run import (
    keeps_updates,
    looks_back,
    whole_run_of,
    without_keeping,
)
from trip_jax.protocol.reporting import require_for_broadcast
from trip_jax.protocol.rules import Rules, follows_the_graph, require_plain_exchange
from trip_jax.protocol.weighing import AsScheduled, ByPhi
from trip_jax.settings import require

RECEIVERS = "defence.receivers=true"


def require_that_fits(
    federation: Federation,
    rules: Rules,
    broadcast: Broadcast | None,
    shards_models: bool,
    model: FlatModel,
) -> None:
    """Refuse rules and contribution methods that can't work together in this federation.

    Args:
        rules: the rules of the federation.
        broadcast: how reports reach the clients; None: they go to a coordinator.
        shards_models: whether each of several devices holds a part of the models.
        model: the clients' model, whose parameters are a vector.

    Raises:
        InvalidSetting: with what to set instead.
    """
    settings, topology, keeps_phi = federation.settings, federation.topology, federation.keeps_phi
    require(
        keeps_phi or not isinstance(rules.weigh, ByPhi),
        "Weights that follow contributions need all of them: set keep_phi=true or trust=none.",
    )
    if broadcast:
        broadcast.who_lies(federation.n, settings.seed)
        require_for_broadcast(rules, topology, keeps_phi)
    aggregate, method = rules.aggregate, rules.contribute
    if aggregate.least > 1:
        _require_members(federation, aggregate.least)
    if aggregate.keeps_sums:
        _require_whole_exchange(federation, rules, shards_models, model)
    if (task := Targets.of(federation.data.labels).task) != CLASSES:
        _require_classes(federation, rules, task)
    if federation.data.tests is not None:
        _require_own_judges(federation, rules, shards_models)
    if settings.training.stays:
        _require_own_parts(federation, rules, shards_models)
    setting = f"contribution.method={settings.contribution.method}"
    if shards_models:
        plain = follows_the_graph(rules) and topology.wave is None
        require(
            plain and not looks_back(method),
            "shard_models=true is for models that are exchanged as they are, by the weights of the "
            "graph, and contributions that are told in each round: set channel=none, trust=none, "
            "schedule=synchronous and contribution.method=trip, or shard_models=false.",
        )
        require(
            not isinstance(rules.adversary, Attack),
            f"adversary={settings.adversary.kind} knows what all send, and with shard_models=true "
            "no device has all models: set shard_models=false.",
        )
        require(
            not settings.training.keeps_state,
            "shard_models=true divides models and no optimiser states: set "
            "training.optimizer_state=fresh, or shard_models=false.",
        )
    kind, defence = settings.adversary.kind, federation.defence
    lies = isinstance(rules.adversary, FalsePredictions)
    by_predictions = getattr(method, "sees", None) is Sees.PREDICTIONS
    for given, wanted in ((lies, f"adversary={kind}"), (defence.receivers, RECEIVERS)):
        require(
            not given or by_predictions,
            f"{wanted} is about what models say of the test set: set "
            f"contribution.method=predictions, or leave it out with {setting}.",
        )
        require(
            not given or topology.wave is None,
            f"{wanted} is about messages that are mixed in the round in which they are sent: set "
            "schedule=synchronous, or leave it out.",
        )
    noised = settings.privacy.kind == RECORDS
    require(
        not noised or (by_predictions and not defence.receivers),
        f"privacy={RECORDS} noises what clients say of the test set, which receivers then can't "
        "check: set contribution.method=predictions and defence.receivers=false.",
    )
    if not looks_back(method):
        return
    waiting = whole_run_of(method)
    if waiting and waiting.budget is not None:
        samples(federation.n, waiting.budget, setting="contribution.budget")
    require(keeps_phi, f"{setting} tells phi as a whole: set keep_phi=true.")
    require_plain_exchange(rules, f"Runs with {setting}")
    require(
        aggregate.linear,
        f"{setting} follows models that are mixed linearly: set aggregation=weighted_mean.",
    )
    alone = without_keeping(method)
    of_models = alone.sees is not Sees.PREDICTIONS
    training = settings.training
    require(
        not alone.same_training
        or (training.rate is None and not training.keeps_state and aggregate.same_training),
        f"{setting} takes what training changes in a model for the same function in every round: "
        "set training.schedule=constant, training.optimizer_state=fresh and "
        "aggregation=weighted_mean.",
    )
    require(
        of_models or method is alone,
        f"{setting} keeps what models say in the place of updates: choose another method, such as "
        "contribution.method=surrogate.",
    )
    require(
        topology.wave is None or topology.present is None or not of_models,
        f"{setting} follows clients from round to round: set schedule=synchronous.",
    )
    honest = kind == "none" or lies
    require(
        honest and not (defence.c1 or defence.c2),
        f"{setting} meets no lies but those of adversary=d3 about predictions: leave out adversary "
        "and the defences C1 and C2."
        if by_predictions
        else f"{setting} is of honest federations: leave out adversary and defence.",
    )
    require(jax.process_count() == 1, f"{setting} concludes in one process: leave out distributed.")


def _require_members(federation: Federation, least: int) -> None:
    """Refuse a client that never has as many members as the aggregation rule is defined for."""
    # In single rounds, where some are away, rules make do with fewer.
    fewest = int(np.asarray(federation.topology.graphs.mask).sum(axis=-1).max(axis=0).min())
    settings = federation.settings.aggregation
    read = AGGREGATIONS.reads(settings.kind)
    given = " and ".join(f"{name}={getattr(settings, name)}" for name in read)
    changed = " or ".join(f"aggregation.{name}" for name in read)
    require(
        least <= fewest,
        f"aggregation={settings.kind}{f' with {given}' if read else ''} is for neighbourhoods of "
        f"at least {least} members, the client included, and one never has more than {fewest}: "
        f"{f'change {changed}, or ' if read else ''}choose a topology with more neighbours.",
    )


def _require_whole_exchange(
    federation: Federation, rules: Rules, shards_models: bool, model: FlatModel
) -> None:
    """Refuse settings that break the sums over all clients which the aggregation rule keeps."""
    settings, params = federation.settings, jax.eval_shape(model.unravel, model.theta)
    has_statistics = bool(jax.tree.leaves(model.model.divided(params)[1]))
    for conflicts, mend in (
        (bool(settings.training.stays), "set training.own=null and training.statistics=mixed"),
        (rules.aggregate.corrects and has_statistics, "choose a model without statistics"),
        (rules.weigh != AsScheduled(), "set trust=none"),
        (not rules.channel.plain_learning, "set channel=none or channel.learning=false"),
        (shards_models, "set shard_models=false"),
    ):
        require(
            not conflicts,
            f"aggregation={settings.aggregation.kind} keeps sums over all clients, by the weights "
            f"of the graph and models as they were trained: {mend}.",
        )


def _require_own_judges(federation: Federation, rules: Rules, shards_models: bool) -> None:
    """Refuse settings that need one shared test set, where each client has its own."""
    settings, method = federation.settings, rules.contribute
    of_models = keeps_updates(without_keeping(method))
    for conflicts, who, mend in (
        (
            isinstance(rules.filter, FilterByAccuracy),
            "defence.c1 compares accuracies of several clients",
            "leave out C1",
        ),
        (
            settings.adversary.kind != "none" and settings.adversary.fake == "evasive",
            "adversary.fake=evasive compares accuracies of several clients",
            "choose another fake",
        ),
        (
            of_models,
            f"contribution.method={settings.contribution.method} tells what models are worth to "
            "whoever concludes the run",
            "choose another method, such as trip",
        ),
        (shards_models, "shard_models=true keeps one test set", "set shard_models=false"),
    ):
        require(
            not conflicts,
            f"{who}, and with dataset.test=own each client has a test set of its own: set "
            f"dataset.test=shared, or {mend}.",
        )


def _require_classes(federation: Federation, rules: Rules, task: str) -> None:
    """Refuse settings that need classes of examples, where labels are numbers or of tokens."""
    settings, method = federation.settings, rules.contribute
    flips = isinstance(rules.adversary, LabelFlips)
    for conflicts, who, mend in (
        (flips, "adversary=label_flips", "another adversary, such as sign_flips"),
        (
            without_keeping(method).needs_classes or method.in_rounds.needs_classes,
            f"contribution.method={settings.contribution.method}",
            "another method, such as trip",
        ),
    ):
        require(
            not conflicts,
            f"{who} is about classes of examples, and labels are of {task}: choose {mend}.",
        )


def _require_own_parts(federation: Federation, rules: Rules, shards_models: bool) -> None:
    """Refuse settings that need others' whole models, where clients keep a part of theirs."""
    settings, method = federation.settings, rules.contribute
    for conflicts, who, mend in (
        (
            isinstance(rules.filter, FilterByAccuracy),
            "defence.c1 evaluates the models of others",
            "leave out C1",
        ),
        (
            settings.adversary.kind != "none" and settings.adversary.fake == "evasive",
            "adversary.fake=evasive evaluates models as others have them",
            "choose another fake",
        ),
        (
            not method.personal,
            f"contribution.method={settings.contribution.method} looks at whole models of others",
            "choose another method, such as trip",
        ),
        (shards_models, "shard_models=true divides whole models", "set shard_models=false"),
    ):
        require(
            not conflicts,
            f"{who}, and a part of each stays its owner's: leave out training.own and "
            f"training.statistics, or {mend}.",
        )
