"""C2: Theta-IPOD for the coordinator's outlier model p = A v + gamma + noise (She & Owen, 2011).

Every row of A holds a single one, so the problem separates by member j:
min over v_j and gamma of sum_k (p_k - v_j - gamma_k)^2 + lambda |gamma_k|. For fixed v the best
gamma is p - v thresholded at lambda/2 (there is no factor 1/2 before the square), for fixed gamma
the best v_j is the mean of p - gamma: soft thresholding yields Huber's location estimate.

Written as v + mean(p - v - gamma), one turn of the two never subtracts one large number from
another, so that an enormous lie costs no precision.
"""

from dataclasses import dataclass

import numpy as np

from trip_node.protocol.reports import Reports, Verdict

MAX_ITERATIONS = 10_000
"""A bound for members with thousands of reports, nearly all of them outlying; tens suffice."""


@dataclass(frozen=True)
class DetectOutliers:
    """C2: reports that lie farther than `distance` from the consensus v are replaced by it.

    An entry's reference is v_j on the reporter's neighbourhood. What a client says of itself has no
    part in the consensus on it, and counts as 0 where nobody else reports on it. With one other
    reporter a lie can't be attributed to either of the two: the other is believed.
    """

    penalty: float
    distance: float
    thresholding: str = "soft"

    def __call__(self, reports: Reports, shown: np.ndarray, n: int) -> Verdict:
        """The verdict on reports of n clients.

        Args:
            reports: the reports of one round, without padding.
            shown: [A] bool, the arcs of the reports that take part in the audit.
        """
        client, member, lcv = reports.client, reports.member, reports.lcv.astype(float)
        others = shown & (client != member)
        known = np.zeros(n, bool)
        known[member[others]] = True
        alone = shown & ~known[member]  # what a client says of itself, and nobody else can confirm
        reference = robust_location(
            lcv[others], member[others], n, penalty=self.penalty, thresholding=self.thresholding
        )[member]
        square = np.where(shown & ~alone, (lcv - reference) ** 2, 0)
        distance = np.sqrt(np.bincount(client, square, minlength=n))
        flagged = distance > self.distance
        adopted = np.where(flagged[client], reference, lcv)
        unconfirmed = np.zeros(n, bool)
        unconfirmed[client[alone & (lcv != 0)]] = True
        return Verdict(
            np.where(alone, 0, adopted).astype(np.float32),
            flagged,
            distance.astype(np.float32),
            unconfirmed,
        )


def robust_location(
    p: np.ndarray, member: np.ndarray, n: int, *, penalty: float, thresholding: str
) -> np.ndarray:
    """The consensus v_j on each member's contribution, [n] float64.

    The soft minimiser is not unique where a member's reports split evenly more than lambda apart;
    then the one closest to their mean is returned, as by iterating from the mean.

    Args:
        p: reported contributions [A].
        member: the member j that each one is about, [A].
        penalty: lambda.
        thresholding: "soft" (the paper's; starts at the mean) or "hard" (starts at the median).

    Returns:
        v, 0 for a member that nobody reports on.
    """
    count = np.bincount(member, minlength=n)

    def mean(x: np.ndarray) -> np.ndarray:
        return np.bincount(member, x, minlength=n) / np.maximum(count, 1)

    lower, upper = _medians(p, member, count)
    limit = penalty / 2
    if thresholding == "soft":
        # Every minimiser lies between these bounds; without them a lie of size L would take
        # L / lambda iterations to walk back from.
        v = np.clip(mean(p), lower - limit, upper + limit)
    else:
        v = (lower + upper) / 2

    def unexplained(residual: np.ndarray) -> np.ndarray:
        """The residual less its outlying part gamma."""
        if thresholding == "soft":
            return np.clip(residual, -limit, limit)
        return np.where(np.abs(residual) > limit, 0, residual)

    for _ in range(MAX_ITERATIONS):
        new = v + mean(unexplained(p - v[member]))
        change = np.max(np.abs(new - v), initial=0)
        v = new
        if change <= 1e-6 * limit:
            break
    return np.where(count > 0, v, 0)


def _medians(p: np.ndarray, member: np.ndarray, count: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The lower and upper median [n] of each member's reports; 0 where there is none."""
    ordered = np.append(p[np.lexsort((p, member))], 0)  # the last one stands for no report
    first = np.cumsum(count) - count
    lower = np.where(count > 0, first + (count - 1) // 2, len(p))
    upper = np.where(count > 0, first + count // 2, len(p))
    return ordered[lower], ordered[upper]
