"""Truths by a replay of coalitions and its errors, which executions of a few of them measure.

Shapley values are linear in the game. For the utilities u of executions and v of a replay,

    Shapley(u) = Shapley(v) + Shapley(u - v).

A replay needs one run and no more training, so that Shapley(v) is of all coalitions or of many.
Where it is near, u - v is small, and the value of u - v is known from few executions: v is a
control variate. Whether it is near changes the error alone, not what is estimated.
"""

from trip_jax.attribution import Journal
from trip_jax.protocol.contributions import Contribution
from trip_jax.protocol.defences import Defence
from trip_jax.protocol.methods.from_models import Replay, Replayed
from trip_jax.settings import choice
from trip_jax.simulation import Simulation
from trip_jax.truth.coalitions import replays


def replay_of(simulation: Simulation, method: str) -> Replayed:
    """The replay by a method, from a run that is trained for it.

    Args:
        method: one of `replays()`.

    Raises:
        InvalidSetting: another method, or a federation that it cannot follow.
    """
    choice("corrected", method, replays())
    honest = followed_by(simulation, method)
    learner = honest.learner
    journal = Journal.of(honest.run(progress=False).records, honest.topology, learner)
    rule = honest.rules.contribute
    assert isinstance(rule, Replay)  # as `replays` says
    return rule.replayed(journal, learner)


def followed_by(simulation: Simulation, method: str) -> Simulation:
    """The simulation without lies on contributions, which the method tells.

    Raises:
        InvalidSetting: the method cannot follow the federation.
    """
    contribution = Contribution("accuracy", method=method)
    return simulation.with_liars("none", Defence()).with_contribution(contribution)
