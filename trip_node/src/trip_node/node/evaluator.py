"""A client's local contribution vector (Eq. 4), from models that it has and a utility of its own.

The same game as in the simulator: the value of a coalition S is the utility of the mixture of all
members' models, after training for those in S and before training for the others (Eq. 5).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from trip_node.node.fields import FARTHEST_ROUND
from trip_node.node.game import ESTIMATORS, Game
from trip_node.node.models import Leaves, finite, leaves, mixture, require_alike
from trip_node.node.report import Report
from trip_node.node.utility import BROKEN, Utility
from trip_node.node.weights import number, proportions, shares
from trip_node.settings import at_least, choice, count, require
from trip_node.shapley.semivalues import SEMIVALUES


@dataclass(frozen=True)
class LocalEvaluator:
    """Tells what each member of a client's neighbourhood contributed to its model in a round.

    Attributes:
        evaluate: the utility of a model, higher is better, as accuracy is; it gets each mixture in
            the form in which the client's own model was given, and must not keep it.
        client: the client's name, among the names of models.
        federation: goes into reports, so that a signed one counts in this federation alone.
        estimator: how coalitions beyond the budget are sampled, "antithetic" or "permutation";
            "exact" evaluates all, whatever the budget.
        budget: coalitions that are evaluated in a round.
        semivalue, normalization: as in the simulator's `contribution.*`; all clients use the same.
        c1: None, or by how much a received model before training may be worse than the client's own
            before that stands for it (C1), in the unit of `evaluate`; the paper's is 0.065.
        seed: the seed by which coalitions are drawn.
        progress: called with the models evaluated so far and in all.
    """

    evaluate: Callable[[Any], float]
    client: str | int
    federation: str = ""
    estimator: str = "antithetic"
    budget: int = 1024
    semivalue: str = "shapley"
    normalization: str = "paper"
    c1: float | None = None
    seed: int = 0
    progress: Callable[[int, int], None] | None = None

    def __post_init__(self) -> None:
        choice("estimator", self.estimator, ESTIMATORS)
        choice("semivalue", self.semivalue, tuple(SEMIVALUES))
        choice("normalization", self.normalization, ("paper", "efficient"))
        count("budget", self.budget, 1)
        at_least("c1", self.c1, 0)
        at_least("seed", self.seed, 0)

    def lcv(
        self,
        before: Mapping[Any, Any],
        after: Mapping[Any, Any],
        weights: Mapping[Any, float],
        *,
        round: int = 0,
        sent_to: Iterable[Any] | None = None,
    ) -> Report:
        """The report of a round, with the local contribution of each member.

        Args:
            before: by member, its model at the start of the round; the client itself is a member.
            after: its model after training, as it was mixed.
            weights: by which models were mixed; they need not sum to one.
            round: its number, which a coordinator asks for.
            sent_to: to whom the client sent its model in the round; None: to the members.

        Raises:
            InvalidSetting: models of different members or shapes, weights or a utility that are no
                numbers, a budget that is too small.
        """
        number_of_round = number(round)
        require(
            isinstance(number_of_round, int) and abs(number_of_round) < FARTHEST_ROUND,
            "round must be an integer within 2^62 of 0.",
        )
        assert isinstance(number_of_round, int)
        require(
            sent_to is None or (isinstance(sent_to, Iterable) and not isinstance(sent_to, str)),  # type: ignore[redundant-expr]
            f"sent_to must be a list of clients, not {str(sent_to)[:50]!r}.",
        )
        _require_members(self.client, before, after, weights)
        members = [self.client, *(j for j in weights if j != self.client)]
        m, numbers, share = len(members), proportions(weights), shares(weights)
        rng = np.random.default_rng([self.seed, abs(number_of_round), number_of_round < 0])
        game = Game.of(m, self.estimator, self.budget, self.semivalue, rng)
        trained = _alike("after", after, members, None)
        started = _alike("before", before, members, trained[0])
        own = "The client's own model {} training holds no numbers.".format
        require(finite(trained[0], trained[0]), own("after"))
        require(finite(started[0], trained[0]), own("before"))
        for j, model in zip(members, trained, strict=True):
            require(finite(model, trained[0]), _garbage(j, "holds what is no number"))
        in_all = game.n_evaluated + (m if self.c1 is not None else 0)
        utility = Utility(self.evaluate, after[self.client], m, in_all, self.progress)

        replaced = self._refused(started, utility)

        def play() -> np.ndarray:
            """The utilities of all coalitions that are evaluated (Eq. 5)."""
            before_training = [started[0 if s in replaced else s] for s in range(m)]
            u = np.zeros(game.n_rows)
            for row, inside in game.coalitions():
                chosen = [(trained if t else before_training)[s] for s, t in enumerate(inside)]
                u[row] = utility(mixture(chosen, [share[j] for j in members], trained[0]))
            return u

        try:
            u = play()
        except BROKEN:
            raise
        except Exception:  # `evaluate` fails for a mixture, or gives no number
            fouled = _fouled(members, started, trained, replaced, utility)
            if not fouled:
                raise
            replaced = sorted([*replaced, *fouled])
            utility.in_all = utility.evaluated + game.n_evaluated
            u = play()
        values, error = game.values(u)
        scale = m if self.normalization == "paper" else 1
        return Report(
            client=str(self.client),
            round=number_of_round,
            members=tuple(map(str, members)),
            weights=tuple(numbers[j] for j in members),
            lcv=tuple((scale * values).tolist()),
            standard_error=tuple((scale * error).tolist()),
            evaluations=utility.evaluated,
            replaced=tuple(str(members[s]) for s in replaced),
            federation=self.federation,
            semivalue=self.semivalue,
            normalization=self.normalization,
            estimator=game.estimator,
            sent_to=None if sent_to is None else tuple(map(str, sent_to)),
        )

    def usable(self, after: Mapping[Any, Any]) -> list[Any]:
        """The members whose models can be mixed, the client itself first.

        A model of another one is left out where it holds what is no number, where its numbers are
        too large to be averaged, and where `evaluate` fails for it or gives no number. Each costs
        one evaluation.

        Args:
            after: by member, its model after training.

        Raises:
            InvalidSetting: the client itself is not among them, or shapes differ.
        """
        _require_members(self.client, after, after, dict.fromkeys(after, 1.0))
        members = [self.client, *(j for j in after if j != self.client)]
        trained = _alike("after", after, members, None)
        utility = Utility(self.evaluate, after[self.client], len(members), len(members), None)

        def fits(model: Leaves) -> bool:
            return finite(model, trained[0]) and utility.of(model) is not None

        return [
            j for j, model in zip(members, trained, strict=True) if j == self.client or fits(model)
        ]

    def _refused(self, started: list[Leaves], utility: Utility) -> list[int]:
        """Places of members for whose model before training the client's own stands."""
        own = started[0]
        refused = [s for s, model in enumerate(started) if not finite(model, own)]
        if self.c1 is None:
            return refused
        least = utility(own) - self.c1
        for s in range(1, len(started)):
            if s not in refused:
                worth = utility.of(started[s])
                if worth is None or worth < least:
                    refused.append(s)
        return sorted(refused)


def _fouled(
    members: list[Any],
    started: list[Leaves],
    trained: list[Leaves],
    replaced: list[int],
    utility: Utility,
) -> list[int]:
    """Places of members whose model before training has no utility, although the own ones have.

    Raises:
        InvalidSetting: a model after training has none, so that no mixture with it can have one.
    """
    utility.in_all += 2 * len(members)
    if utility.of(started[0]) is None or utility.of(trained[0]) is None:
        return []  # the fault is the client's own
    for s in range(1, len(members)):
        worth = utility.of(trained[s])
        require(worth is not None, _garbage(members[s], "has a utility that is no number"))
    received = [s for s in range(1, len(members)) if s not in replaced]
    return [s for s in received if utility.of(started[s]) is None]


def _garbage(member: Any, what: str) -> str:
    return (
        f"after[{member!r}] {what}: leave its model out of the mixture, too; "
        "LocalEvaluator.usable names the members whose models can be mixed."
    )


def _alike(
    which: str, models: Mapping[Any, Any], members: list[Any], own: Leaves | None
) -> list[Leaves]:
    """Models of one architecture, that of `own` or of the first."""
    found = [leaves(models[j], f"{which}[{j!r}]") for j in members]
    for j, model in zip(members, found, strict=True):
        require_alike(own or found[0], model, f"{which}[{j!r}]")
    return found


def _require_members(client: Any, before: Any, after: Any, weights: Mapping[Any, float]) -> None:
    """Refuse models and weights of different members."""
    for name, models in (("before", before), ("after", after)):
        differing = sorted(map(str, weights.keys() ^ models.keys()))
        require(
            not differing,
            f"{name} and weights must be of the same members: see {', '.join(differing[:3])}.",
        )
    require(
        client in weights,
        f"weights lacks the client itself, {client!r}: it is a member of its neighbourhood, with "
        "weight 0 if need be.",
    )
