"""C2: Theta-IPOD for the coordinator's outlier model p = A v + gamma + noise (She & Owen, 2011).

Every row of A holds a single one, so the problem separates by member j:
min over v_j and gamma of sum_k (p_k - v_j - gamma_k)^2 + lambda |gamma_k|. For fixed v the best
gamma is p - v thresholded at lambda/2 (there is no factor 1/2 before the square), for fixed gamma
the best v_j is the mean of p - gamma: soft thresholding yields Huber's location estimate.

The mean is computed as v + mean(p - v - gamma). So no large number is subtracted from another, and
an enormous lie costs no precision.
"""

from dataclasses import dataclass

import jax.numpy as jnp
from jax import Array, lax, ops
from jaxtyping import Bool, Float, Int

from trip_jax.protocol.reports import Reports, Verdict

MAX_ITERATIONS = 10_000
"""The limit of iterations. Tens suffice, unless nearly all of thousands of reports are outlying."""


@dataclass(frozen=True)
class DetectOutliers:
    """C2: a report that lies farther than `distance` from the consensus v is replaced by it.

    The distance is the L2 distance over the reporter's neighbourhood. The consensus on a client is
    that of other clients' reports. Where there is none, its own entry counts as 0; where there is
    one, that report is believed.
    """

    penalty: float
    distance: float
    thresholding: str = "soft"

    def __call__(self, reports: Reports, n: int) -> Verdict:
        others, alone = by_others(reports, n)
        v = robust_location(
            reports.lcv,
            reports.member,
            others,
            n,
            penalty=self.penalty,
            thresholding=self.thresholding,
        )
        reference = v[reports.member]
        square = jnp.where(reports.real & ~alone, (reports.lcv - reference) ** 2, 0)
        distance = jnp.sqrt(ops.segment_sum(square, reports.client, num_segments=n))
        flagged = distance > self.distance
        adopted = jnp.where(flagged[reports.client], reference, reports.lcv)
        said = (alone & (reports.lcv != 0)).astype(jnp.int32)
        unconfirmed = ops.segment_max(said, reports.client, num_segments=n) > 0
        return Verdict(jnp.where(alone, 0, adopted), flagged, distance, unconfirmed)


def by_others(reports: Reports, n: int) -> tuple[Bool[Array, " A"], Bool[Array, " A"]]:
    """Which entries are on another client, and which on a client that nobody else reports on."""
    others = reports.real & (reports.client != reports.member)
    known = ops.segment_max(others.astype(jnp.int32), reports.member, num_segments=n) > 0
    return others, reports.real & ~known[reports.member]


def robust_location(
    p: Float[Array, " A"],
    member: Int[Array, " A"],
    real: Bool[Array, " A"],
    n: int,
    *,
    penalty: float | Float[Array, ""],
    thresholding: str,
) -> Float[Array, " n"]:
    """The consensus v_j on each member's contribution, by Theta-IPOD.

    With soft thresholding the minimiser is not unique if a member's reports fall into two halves
    more than lambda apart; then the minimiser closest to their mean is returned.

    Args:
        p: reported contributions.
        member: the member j that each contribution is of.
        real: False where padded.
        penalty: lambda.
        thresholding: "soft" (the paper's; starts at the mean) or "hard" (starts at the median).

    Returns:
        v; 0 for a member that nobody reports on.
    """
    count = ops.segment_sum(real.astype(p.dtype), member, num_segments=n)

    def mean(x: Array) -> Array:
        x = ops.segment_sum(jnp.where(real, x, 0), member, num_segments=n)
        return x / jnp.maximum(count, 1)

    lower, upper = _medians(p, member, real, n)
    limit = penalty / 2
    if thresholding == "soft":
        # Every minimiser lies between these bounds. Without them, a lie of size L would take
        # L / lambda iterations to leave behind.
        start = jnp.clip(mean(p), lower - limit, upper + limit)
    else:
        start = (lower + upper) / 2

    def unexplained(residual: Array) -> Array:
        """The residual less its outlying part gamma."""
        if thresholding == "soft":
            return jnp.clip(residual, -limit, limit)
        return jnp.where(jnp.abs(residual) > limit, 0, residual)

    def unfinished(carry: tuple[Array, Array, Array]) -> Array:
        _, change, iteration = carry
        return (change > 1e-6 * limit) & (iteration < MAX_ITERATIONS)

    def iterate(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        v, _, iteration = carry
        new = v + mean(unexplained(p - v[member]))
        return new, jnp.max(jnp.abs(new - v), initial=0), iteration + 1

    v, _, _ = lax.while_loop(unfinished, iterate, (start, jnp.float32(jnp.inf), jnp.int32(0)))
    return jnp.where(count > 0, v, 0)


def _medians(p: Array, member: Array, real: Array, n: int) -> tuple[Array, Array]:
    """The lower and upper median [n] of each member's reports; undefined where there is none."""
    segment = jnp.where(real, member, n)
    ordered = p[jnp.lexsort((p, segment))]
    count = ops.segment_sum(jnp.ones(len(p), int), segment, num_segments=n + 1)[:n]
    first = jnp.cumsum(count) - count
    last = len(p) - 1
    return (
        ordered[jnp.minimum(first + jnp.maximum(count - 1, 0) // 2, last)],
        ordered[jnp.minimum(first + count // 2, last)],
    )
