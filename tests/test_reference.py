"""The oracle of reference.py against values worked out by hand or by another method."""

from itertools import combinations, pairwise, permutations
from math import exp, log

import numpy as np
import pytest
from scipy.optimize import minimize, minimize_scalar

from tests import reference as ref


def table(players, worth):
    """The game {S: worth(S)} over every subset of the players."""
    sizes = range(len(players) + 1)
    return {frozenset(s): float(worth(set(s))) for k in sizes for s in combinations(players, k)}


def constant(*bias):
    """A one-layer model on one feature that answers the same logits whatever it sees."""
    return [(np.zeros((1, len(bias))), np.array(bias, dtype=float))]


def random_mlp(rng, sizes):
    return [(rng.normal(size=(a, b)), 0.1 * rng.normal(size=b)) for a, b in pairwise(sizes)]


def assert_same_params(a, b, **tolerance):
    for pair_a, pair_b in zip(a, b, strict=True):
        for leaf_a, leaf_b in zip(pair_a, pair_b, strict=True):
            np.testing.assert_allclose(leaf_a, leaf_b, **({"rtol": 0} | tolerance))


# A test set of three zeros and a one: a model that always says 0 scores 3/4, always 1 scores 1/4,
# and SIGN, which reads the feature, scores 1.
X4 = np.array([[1.0], [1.0], [1.0], [-1.0]])
Y4 = np.array([0, 0, 0, 1])
SIGN = [(np.array([[1.0, -1.0]]), np.zeros(2))]


# name: players, u, Shapley values by hand (the printed form is m times these)
GAMES = {
    "alone": ([7], lambda s: 5.0 if s else 2.0, {7: 3.0}),
    "additive": ([1, 4, 6], lambda s: 2 + sum(10**-j for j in s), {1: 0.1, 4: 1e-4, 6: 1e-6}),
    # One left glove (0), two right ones.
    "glove": ([0, 1, 2], lambda s: 0 in s and len(s) > 1, {0: 2 / 3, 1: 1 / 6, 2: 1 / 6}),
    "unanimity": ([0, 1, 2, 3], lambda s: {1, 3} <= s, {0: 0, 1: 1 / 2, 2: 0, 3: 1 / 2}),
    # A runway for planes that need 1, 2 and 3: each stretch is shared by those who use it.
    "airport": (
        [1, 2, 3],
        lambda s: max(s, default=0),
        {1: 1 / 3, 2: 1 / 3 + 1 / 2, 3: 1 / 3 + 1 / 2 + 1},
    ),
    # u = 1, 4, 2, 9 on {}, {0}, {1}, {0, 1}: the means of (3, 7) and of (1, 5).
    "two": ([0, 1], lambda s: [1, 4, 2, 9][sum(2**j for j in s)], {0: 5.0, 1: 3.0}),
}


@pytest.mark.parametrize("name", GAMES)
def test_shapley_of_games_worked_by_hand(name):
    players, worth, expected = GAMES[name]
    u = table(players, worth)
    efficient = ref.shapley(u, players, "efficient")
    paper = ref.shapley(u, players, "paper")
    assert efficient == pytest.approx(expected, abs=1e-12)
    assert paper == pytest.approx({j: len(players) * expected[j] for j in players}, abs=1e-12)


def test_shapley_of_a_random_game_is_the_mean_over_arrival_orders():
    rng = np.random.default_rng(0)
    players = [0, 1, 2, 3]
    u = table(players, lambda s: rng.normal())
    mean = dict.fromkeys(players, 0.0)
    for order in permutations(players):
        for k, j in enumerate(order):
            mean[j] += (u[frozenset(order[: k + 1])] - u[frozenset(order[:k])]) / 24
    assert ref.shapley(u, players, "efficient") == pytest.approx(mean, abs=1e-12)


def test_shapley_refuses_an_unknown_normalization():
    with pytest.raises(ValueError, match="banzhaf"):
        ref.shapley(table([0], len), [0], "banzhaf")


def test_coalitions_are_the_power_set():
    found = list(ref.coalitions([5, 2, 9]))
    assert len(found) == 8
    assert set(found) == set(table([2, 5, 9], len))


def test_logits_of_a_network_worked_by_hand():
    theta = [
        (np.array([[1.0, -1.0], [2.0, 1.0]]), np.array([0.5, 0.0])),
        (np.array([[1.0, 0.0], [3.0, -1.0]]), np.array([0.0, 10.0])),
    ]
    # Hidden: (1 + 4 + .5, -1 + 2) = (5.5, 1), then (-3 + 0 + .5, 3 + 0) -> (0, 3) by the ReLU.
    x = np.array([[1.0, 2.0], [-3.0, 0.0]])
    np.testing.assert_allclose(ref.mlp_logits(theta, x), [[8.5, 9.0], [9.0, 7.0]])
    images = x.reshape(2, 2, 1, 1)
    np.testing.assert_array_equal(ref.mlp_logits(theta, images), ref.mlp_logits(theta, x))


def test_gradient_agrees_with_finite_differences():
    rng = np.random.default_rng(1)
    theta = random_mlp(rng, [4, 5, 6, 3])
    x, y = rng.normal(size=(7, 4)), rng.integers(0, 3, size=7)
    loss, gradient = ref.mlp_loss_and_gradient(theta, x, y)
    assert loss == pytest.approx(-ref.utilities(theta, x, y)["loss"])
    h = 1e-6
    for pair, gradient_pair in zip(theta, gradient, strict=True):
        for leaf, gradient_leaf in zip(pair, gradient_pair, strict=True):
            assert leaf.shape == gradient_leaf.shape
            for index in np.ndindex(leaf.shape):
                kept = leaf[index]
                leaf[index] = kept + h
                up, _ = ref.mlp_loss_and_gradient(theta, x, y)
                leaf[index] = kept - h
                down, _ = ref.mlp_loss_and_gradient(theta, x, y)
                leaf[index] = kept
                assert gradient_leaf[index] == pytest.approx((up - down) / (2 * h), abs=1e-8)


def test_loss_survives_large_logits():
    loss, gradient = ref.mlp_loss_and_gradient(constant(1000.0, 0.0), [[1.0]], np.array([1]))
    assert loss == pytest.approx(1000.0)
    np.testing.assert_allclose(gradient[0][1], [1.0, -1.0])


def test_two_steps_of_momentum_by_hand():
    x, y = np.array([[1.0]]), np.array([0])
    start = constant(0.0, 0.0)
    # Logits (0, 0): softmax (1/2, 1/2), gradient (-1/2, 1/2) for bias and kernel alike.
    one = ref.train(start, x, y, [np.array([0])], 1, 0.1, 0.9)
    assert_same_params(one, [(np.array([[0.05, -0.05]]), np.array([0.05, -0.05]))], atol=1e-15)
    # Logits (0.1, -0.1): p = 1 / (1 + exp(-0.2)) and the gradient is (p - 1, 1 - p).
    p = 1 / (1 + exp(-0.2))
    step = 0.05 - 0.1 * ((p - 1) + 0.9 * -0.5)
    both = [(np.array([[step, -step]]), np.array([step, -step]))]
    two_epochs = [np.array([0]), np.array([0])]
    assert_same_params(ref.train(start, x, y, two_epochs, 1, 0.1, 0.9), both, atol=1e-15)
    # A second call starts from zero momentum.
    fresh = 0.05 - 0.1 * (p - 1)
    expected = [(np.array([[fresh, -fresh]]), np.array([fresh, -fresh]))]
    again = ref.train(one, x, y, [np.array([0])], 1, 0.1, 0.9)
    assert_same_params(again, expected, atol=1e-15)
    assert_same_params(start, constant(0.0, 0.0))


def test_minibatches_follow_the_order_and_the_short_one_is_a_mean():
    rng = np.random.default_rng(2)
    x, y = rng.normal(size=(5, 3)), np.array([0, 1, 1, 0, 1])
    kernel, bias = rng.normal(size=(3, 2)), rng.normal(size=2)
    trained = ref.train([(kernel, bias)], x, y, [np.array([4, 0, 3, 1, 2])], 2, 0.3, 0.0)
    for batch in ([4, 0], [3, 1], [2]):
        odds = np.exp(x[batch] @ kernel + bias)
        error = odds / odds.sum(axis=1, keepdims=True) - np.eye(2)[y[batch]]
        kernel = kernel - 0.3 * x[batch].T @ error / len(batch)
        bias = bias - 0.3 * error.mean(axis=0)
    assert_same_params(trained, [(kernel, bias)], atol=1e-14)


def test_utilities_by_hand():
    # The identity on log-probabilities: the softmax gives the probabilities back.
    p = np.array([[0.7, 0.3], [0.4, 0.6], [0.2, 0.8]])
    found = ref.utilities([(np.eye(2), np.zeros(2))], np.log(p), np.array([0, 0, 1]))
    assert found == pytest.approx(
        {
            "accuracy": 2 / 3,
            "loss": (log(0.7) + log(0.4) + log(0.8)) / 3,
            "probability": (0.7 + 0.4 + 0.8) / 3,
        }
    )


def test_aggregate_by_hand():
    models = {3: constant(4.0, 0.0), 8: constant(0.0, 8.0)}
    mixed = ref.aggregate(models, {3: 2.0, 8: 6.0})
    assert_same_params(mixed, constant(1.0, 6.0))
    assert_same_params(ref.aggregate(models, {3: 0.0, 8: 0.1}), models[8], atol=1e-15)
    with pytest.raises(ValueError, match="positive"):
        ref.aggregate(models, {3: 0.0, 8: 0.0})


def test_partial_model_keeps_every_weight():
    trained = {0: constant(8.0, 0.0), 1: constant(0.0, 8.0)}
    pre = {0: constant(4.0, 0.0), 1: constant(0.0, 4.0)}
    weights = {0: 1.0, 1: 3.0}
    for coalition, bias in [((), (1, 3)), ((0,), (2, 3)), ((1,), (1, 6)), ((0, 1), (2, 6))]:
        mixed = ref.partial_model(frozenset(coalition), trained, pre, weights)
        assert_same_params(mixed, constant(*bias))


def test_local_contribution_vector_by_hand():
    pre = {0: constant(0.0, 1.0), 1: constant(0.0, 1.0)}
    trained = {0: constant(2.0, 0.0), 1: constant(1.0, 0.0)}
    weights = {0: 1.0, 1: 3.0}
    # Mixed biases, times 4: {} (0, 4), {0} (2, 3), {1} (3, 1), both (5, 0); 0 wins from {1} on.
    lcv, u = ref.local_contribution_vector(trained, pre, weights, X4, Y4, "accuracy", "paper")
    empty, both = frozenset(), frozenset({0, 1})
    assert u == {empty: 0.25, frozenset({0}): 0.25, frozenset({1}): 0.75, both: 0.75}
    assert lcv == {0: 0.0, 1: 1.0}
    lcv, _ = ref.local_contribution_vector(trained, pre, weights, X4, Y4, "accuracy", "efficient")
    assert lcv == {0: 0.0, 1: 0.5}


@pytest.mark.parametrize("utility", ["accuracy", "loss", "probability"])
def test_local_contribution_vector_is_efficient_and_ignores_who_did_not_move(utility):
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(40, 4)), rng.integers(0, 3, size=40)
    members = [2, 3, 5, 9]
    pre = {j: random_mlp(rng, [4, 5, 3]) for j in members}
    trained = {j: random_mlp(rng, [4, 5, 3]) for j in members}
    trained[5] = pre[5]
    weights = {2: 0.5, 3: 2.0, 5: 1.0, 9: 0.0}
    start = ref.utilities(ref.aggregate(pre, weights), x, y)[utility]
    end = ref.utilities(ref.aggregate(trained, weights), x, y)[utility]
    assert start != end
    efficient, _ = ref.local_contribution_vector(trained, pre, weights, x, y, utility, "efficient")
    paper, _ = ref.local_contribution_vector(trained, pre, weights, x, y, utility, "paper")
    assert sum(efficient.values()) == pytest.approx(end - start, abs=1e-12)
    assert sum(paper.values()) == pytest.approx(4 * (end - start), abs=1e-12)
    # Client 5 did not move and client 9 has no weight.
    assert efficient[5] == efficient[9] == 0.0
    assert efficient[2] != 0.0
    assert efficient[3] != 0.0


def test_c1_replaces_only_what_is_clearly_worse_than_the_receiver():
    always_0, always_1 = constant(1.0, 0.0), constant(0.0, 1.0)  # accuracies 3/4 and 1/4
    pre = {0: SIGN, 1: always_0, 2: always_1, 3: always_1}
    kept, flagged = ref.filter_pre_training(1, pre, X4, Y4, 0.4)
    assert flagged == {2, 3}
    assert kept == {0: SIGN, 1: always_0, 2: always_0, 3: always_0}
    assert pre[2] is always_1
    # 1/4 is not below 3/4 - 1/2: the comparison is strict.
    kept, flagged = ref.filter_pre_training(1, pre, X4, Y4, 0.5)
    assert (kept, flagged) == (pre, set())
    # The yardstick is the receiver's own accuracy: 1 for client 0, 1/4 for client 2.
    assert ref.filter_pre_training(0, pre, X4, Y4, 0.2)[1] == {1, 2, 3}
    assert ref.filter_pre_training(2, pre, X4, Y4, 0.0)[1] == set()


def test_c1_looks_at_accuracy_even_where_the_loss_is_terrible():
    overconfident = constant(1000.0, 0.0)
    _, flagged = ref.filter_pre_training(0, {0: constant(0.1, 0.0), 1: overconfident}, X4, Y4, 0.0)
    assert flagged == set()


def test_falsified_lcv_by_hand():
    lcv = {0: 1.0, 4: 2.0, 6: 0.0}
    assert ref.falsify_lcv(lcv, {4}, 0.5, False) == {0: 1.0, 4: 2.5, 6: 0.0}
    assert ref.falsify_lcv(lcv, {4}, 0.5, True) == {0: 0.5, 4: 2.5, 6: -0.5}
    assert lcv == {0: 1.0, 4: 2.0, 6: 0.0}
    assert ref.falsify_lcv(lcv, {4, 6, 9}, 0.5, True) == {0: 0.5, 4: 2.5, 6: 0.5}


def test_thresholding_by_hand():
    residuals = [-3.0, -2.0, -1.0, 0.0, 2.0, 2.5]
    soft = [ref.threshold_residual(r, 2.0, "soft") for r in residuals]
    hard = [ref.threshold_residual(r, 2.0, "hard") for r in residuals]
    assert soft == [-1.0, 0.0, 0.0, 0.0, 0.0, 0.5]
    assert hard == [-3.0, 0.0, 0.0, 0.0, 0.0, 2.5]
    with pytest.raises(ValueError, match="firm"):
        ref.threshold_residual(1.0, 2.0, "firm")


def test_theta_ipod_by_hand():
    # lambda/2 = 1. Soft: the three ones pull with 3 (v - 1), the five with at most 1: v = 4/3.
    reports = [(0, 0, 1.0), (1, 0, 1.0), (2, 0, 1.0), (3, 0, 5.0), (3, 7, -2.0)]
    v, gamma = ref.theta_ipod(reports, 2.0, "soft")
    assert v == pytest.approx({0: 4 / 3, 7: -2.0}, abs=1e-5)
    assert gamma == pytest.approx([0, 0, 0, 5 - 4 / 3 - 1, 0], abs=1e-5)
    # Hard: starts from the median 1, and the five is set aside whole.
    v, gamma = ref.theta_ipod(reports, 2.0, "hard")
    assert v == pytest.approx({0: 1.0, 7: -2.0})
    assert gamma == pytest.approx([0, 0, 0, 4, 0])


def test_theta_ipod_of_two_distant_reports_is_their_mean():
    v, gamma = ref.theta_ipod([(0, 0, 0.0), (1, 0, 10.0)], 2.0, "soft")
    assert v == {0: 5.0}
    assert gamma == [-4.0, 4.0]
    # Any v in [1, 9] does as well.
    best = ref.outlier_objective([(0, 0, 0.0), (1, 0, 10.0)], v, gamma, 2.0)
    assert best == ref.outlier_objective([(0, 0, 0.0), (1, 0, 10.0)], {0: 1.0}, [0.0, 8.0], 2.0)
    assert best == 1.0 + 1.0 + 2.0 * 8.0
    # With four in two distant pairs the mean is not the median, and soft stays at the mean.
    v, _ = ref.theta_ipod([(i, 0, p) for i, p in enumerate([0.0, 2.0, 10.0, 14.0])], 0.2, "soft")
    assert v == pytest.approx({0: 6.5})


@pytest.mark.parametrize("thresholding", ["soft", "hard"])
def test_theta_ipod_of_zeros_and_of_nothing(thresholding):
    zeros = [(0, 0, 0.0), (1, 0, 0.0)]
    assert ref.theta_ipod(zeros, 0.5, thresholding) == ({0: 0.0}, [0.0, 0.0])
    assert ref.theta_ipod([], 0.5, thresholding) == ({}, [])


@pytest.mark.parametrize("lam", [0.05, 0.5, 2.0, 20.0])
def test_theta_ipod_agrees_with_convex_solvers(lam):
    rng = np.random.default_rng(4)
    reports = [(i, j, float(rng.normal() + 3 * j)) for j in range(3) for i in range(9)]
    reports += [(9, 1, 14.0), (9, 2, -9.0)]
    v, gamma = ref.theta_ipod(reports, lam, "soft")

    # min over g of (r - g)^2 + lambda |g| is r^2 where |r| <= lambda/2 (there g = 0) and
    # lambda |r| - lambda^2/4 beyond (there r - g = +-lambda/2): what remains is convex in v_j.
    def loss(r):
        return np.where(np.abs(r) <= lam / 2, r**2, lam * np.abs(r) - lam**2 / 4).sum()

    total = 0.0
    for j in range(3):
        p = np.array([value for _, k, value in reports if k == j])
        best = minimize_scalar(
            lambda c, p=p: loss(p - c),
            bounds=(p.min(), p.max()),
            method="bounded",
            options={"xatol": 1e-12},
        )
        total += best.fun
        # Where no report lies within lambda/2 of v the minimiser is an interval.
        if (np.abs(p - v[j]) < lam / 2 - 1e-3).any():
            assert v[j] == pytest.approx(best.x, abs=1e-4)
    found = ref.outlier_objective(reports, v, gamma, lam)
    assert found == pytest.approx(total, rel=1e-8)

    # The same from the printed objective, with gamma = a - b, a and b non-negative.
    members = np.array([j for _, j, _ in reports])
    p, m = np.array([value for _, _, value in reports]), len(reports)

    def objective(z):
        v_, a, b = z[:3], z[3 : 3 + m], z[3 + m :]
        r = p - v_[members] - a + b
        to_v = [-2 * r[members == j].sum() for j in range(3)]
        return r @ r + lam * (a + b).sum(), np.concatenate([to_v, lam - 2 * r, lam + 2 * r])

    bounds = [(None, None)] * 3 + [(0, None)] * (2 * m)
    options = {"maxiter": 20_000, "maxfun": 50_000, "ftol": 1e-14, "gtol": 1e-10}
    z = minimize(objective, np.zeros(3 + 2 * m), jac=True, bounds=bounds, options=options)
    assert found == pytest.approx(z.fun, rel=1e-6)
    assert found <= z.fun * (1 + 1e-9)


def test_theta_ipod_says_when_it_did_not_settle():
    with pytest.raises(RuntimeError, match="1 iterations"):
        ref.theta_ipod([(0, 0, 0.0), (1, 0, 0.0), (2, 0, 9.0)], 1.0, max_iterations=1)


def test_c2_by_hand():
    # Reports on client 3 are 5, 1, 1: with lambda/2 = 1 the ones give 2 (v - 1) = 1, v = 1.5.
    lcvs = [{3: 5.0, 1: 1.0, 2: 0.0}, {3: 1.0, 1: 1.0, 2: 0.0}, {3: 1.0, 1: 1.0, 2: 0.0}]
    adopted, flagged, distances = ref.detect_outliers(lcvs, 2.0, 1.0, "soft")
    assert flagged == [True, False, False]
    assert distances == pytest.approx([3.5, 0.5, 0.5], abs=1e-5)
    assert adopted[0] == pytest.approx({3: 1.5, 1: 1.0, 2: 0.0}, abs=1e-5)
    assert adopted[1:] == lcvs[1:]
    assert lcvs[0][3] == 5.0
    # Hard finds v = 1 exactly; a distance of 4 exceeds 3.9 and does not exceed 4.
    assert ref.detect_outliers(lcvs, 2.0, 3.9, "hard")[1] == [True, False, False]
    assert ref.detect_outliers(lcvs, 2.0, 4.0, "hard")[1] == [False, False, False]
    assert ref.detect_outliers(lcvs, 2.0, 4.0, "hard")[0] == lcvs


def test_c2_counts_zeros_of_members_and_leaves_the_others_out():
    lcvs = [{3: 0.9, 4: 3.0}, {3: 0.0, 4: 4.0}, {3: 0.0, 2: 6.0}]
    # lambda is too large for anything to be an outlier, so v is the mean: .3 and 3.5. Nobody
    # confirms what client 2 says of itself.
    adopted, flagged, distances = ref.detect_outliers(lcvs, 100.0, 0.0, "soft")
    assert flagged == [True, True, True]
    assert adopted[0] == pytest.approx({3: 0.3, 4: 3.5})
    assert adopted[1] == pytest.approx({3: 0.3, 4: 3.5})
    assert adopted[2] == pytest.approx({3: 0.3, 2: 0.0})
    assert distances == pytest.approx([(0.36 + 0.25) ** 0.5, (0.09 + 0.25) ** 0.5, 0.3])


def test_eq_3_on_a_chain():
    # Arcs 0 -> 1 -> 2.
    weights = [{0: 5.0}, {0: 1.0, 1: 3.0}, {1: 2.0, 2: 2.0}]
    # Client 0 also reports on client 2, which is not its business.
    lcvs = [{0: 1.0, 2: 50.0}, {0: 2.0, 1: 4.0}, {1: 6.0, 2: 8.0}]
    once = ref.update_contributions(np.zeros((3, 3)), lcvs, weights)
    np.testing.assert_allclose(once, [[1, 0, 0], [2, 4, 0], [0, 6, 8]])
    # Inherited: (1, 0, 0); ((1, 0, 0) + 3 (2, 4, 0)) / 4; ((2, 4, 0) + (0, 6, 8)) / 2.
    twice = ref.update_contributions(once, lcvs, weights)
    np.testing.assert_allclose(twice, [[2, 0, 0], [3.75, 7, 0], [1, 11, 12]])
    np.testing.assert_allclose(once, [[1, 0, 0], [2, 4, 0], [0, 6, 8]])


N, ROUNDS = 4, 3
RING = [{(i + d) % N: 1.0 + i + d for d in (-1, 0, 1)} for i in range(N)]
COMPLETE = [{j: 1.0 + j for j in range(N)} for _ in range(N)]
ALONE = [{i: 2.0} for i in range(N)]


def simulate(neighbourhoods, **choices):
    """A run on overlapping blobs: N clients of unequal sizes, two local epochs."""
    rng = np.random.default_rng(5)
    centres = rng.normal(size=(3, 2))

    def draw(size):
        y = rng.integers(0, 3, size=size)
        return centres[y] + 0.7 * rng.normal(size=(size, 2)), y

    data, test = [draw(5 + 2 * i) for i in range(N)], draw(60)
    theta0 = random_mlp(rng, [2, 4, 3])
    orders = [[[rng.permutation(len(y)) for _ in range(2)] for _, y in data] for _ in range(ROUNDS)]
    settings = {"batch_size": 4, "learning_rate": 0.1, "momentum": 0.9} | choices
    run = ref.trip_shapley(theta0, data, test, neighbourhoods, orders, **settings)
    return run, data, test, orders


def fake(i, t):
    return random_mlp(np.random.default_rng([i, t]), [2, 4, 3])


@pytest.mark.parametrize("normalization", ["paper", "efficient"])
def test_isolated_clients_are_credited_with_what_they_gained(normalization):
    run, data, (x, y), orders = simulate(
        [ALONE] * ROUNDS, utility="loss", normalization=normalization
    )
    gains = np.zeros((N, N))
    for i in range(N):
        theta = run.models[0][i]
        for t in range(ROUNDS):
            theta = ref.train(theta, *data[i], orders[t][i], 4, 0.1, 0.9)
        assert_same_params(run.models[ROUNDS][i], theta, atol=1e-15)
        start = ref.utilities(run.models[0][i], x, y)["loss"]
        gains[i, i] = ref.utilities(theta, x, y)["loss"] - start
    np.testing.assert_allclose(run.phi, gains, atol=1e-12)


def test_on_the_complete_graph_contributions_add_up_to_the_accuracy_gained():
    run, *_ = simulate([COMPLETE] * ROUNDS, normalization="efficient")
    gain = run.accuracies[ROUNDS][0] - run.accuracies[0][0]
    assert gain != 0
    np.testing.assert_allclose(run.phi.sum(axis=1), gain, atol=1e-12)
    np.testing.assert_allclose(run.phi, run.phi[[0] * N], atol=1e-12)
    paper, *_ = simulate([COMPLETE] * ROUNDS)
    np.testing.assert_allclose(paper.phi, N * run.phi, atol=1e-12)


def test_the_network_may_change_from_round_to_round():
    run, data, _, orders = simulate([RING, ALONE, COMPLETE], utility="loss")
    assert [[set(lcv) for lcv in round_] for round_ in run.lcv] == [
        [set(members) for members in round_] for round_ in (RING, ALONE, COMPLETE)
    ]
    assert [len(u) for u in run.coalition_utilities[0]] == [8] * N
    # Round 0 inherits nothing; round 1 adds to the diagonal alone.
    for i in range(N):
        for j in range(N):
            assert run.phis[1][i, j] == run.lcv[0][i].get(j, 0.0)
    difference = run.phis[2] - run.phis[1]
    np.testing.assert_allclose(difference, np.diag(np.diag(difference)), atol=1e-15)
    members = {j: ref.train(run.models[0][j], *data[j], orders[0][j], 4, 0.1, 0.9) for j in RING[1]}
    assert_same_params(run.models[1][1], ref.aggregate(members, RING[1]))


def test_second_round_contrasts_each_member_with_its_own_pre_training_model():
    run, _, (x, y), _ = simulate([RING] * ROUNDS, utility="probability", normalization="efficient")
    for i, weights in enumerate(RING):
        before = ref.aggregate({j: run.models[1][j] for j in weights}, weights)
        gain = (
            ref.utilities(run.models[2][i], x, y)["probability"]
            - ref.utilities(before, x, y)["probability"]
        )
        assert sum(run.lcv[1][i].values()) == pytest.approx(gain, abs=1e-12)


LIES = {
    "d1": {"liars": [1], "fake": fake, "lie_models": True},
    "d2": {"liars": [1, 2], "amount": 0.1, "lower_others": True},
    "c1": {"v_threshold": 0.0},
    "c2": {"lam": 0.01, "threshold": 0.0},
    "all": {
        "liars": [0, 3],
        "fake": fake,
        "lie_models": True,
        "amount": 0.3,
        "v_threshold": 0.1,
        "lam": 0.05,
        "threshold": 0.05,
        "thresholding": "hard",
    },
}


@pytest.mark.parametrize("name", LIES)
def test_lies_and_defences_leave_the_models_alone(name):
    honest, *_ = simulate([RING] * ROUNDS)
    run, *_ = simulate([RING] * ROUNDS, **LIES[name])
    assert (run.phi != honest.phi).any()
    assert run.accuracies == honest.accuracies
    for t in range(ROUNDS + 1):
        for i in range(N):
            assert_same_params(run.models[t][i], honest.models[t][i], atol=0)


def test_d1_is_what_the_neighbours_see_and_not_the_liar():
    honest, *_ = simulate([RING] * ROUNDS, utility="loss")
    run, _, (x, y), _ = simulate([RING] * ROUNDS, utility="loss", **LIES["d1"])
    for t in range(ROUNDS):
        assert run.lcv[t][1] == honest.lcv[t][1]
        assert run.lcv[t][3] == honest.lcv[t][3]  # no neighbour of client 1
        pre = dict(enumerate(run.models[t])) | {1: fake(1, t)}
        u = ref.utilities(ref.aggregate({j: pre[j] for j in RING[2]}, RING[2]), x, y)["loss"]
        assert run.coalition_utilities[t][2][frozenset()] == pytest.approx(u, abs=1e-12)
        assert run.lcv[t][2] != honest.lcv[t][2]
    assert run.reported == run.lcv == run.adopted
    # Without the flag a fake is not sent.
    told, *_ = simulate([RING] * ROUNDS, utility="loss", liars=[1], fake=fake)
    assert told.lcv == honest.lcv


def test_c1_undoes_d1_in_the_first_round():
    honest, _, test, _ = simulate([RING] * ROUNDS)
    candidates = [fake(seed, 0) for seed in range(30)]
    worst = min(candidates, key=lambda theta: ref.utilities(theta, *test)["accuracy"])
    assert ref.utilities(worst, *test)["accuracy"] < honest.accuracies[0][0] - 0.05
    lie = {"liars": [1, 2], "fake": lambda i, t: worst, "lie_models": True}
    run, *_ = simulate([RING] * ROUNDS, v_threshold=0.05, **lie)
    # Both liars filter what they receive from each other; each keeps its own true model.
    assert run.c1_flags[0] == {(0, 1), (2, 1), (1, 2), (3, 2)}
    # All start alike, so the receiver's own model is the liar's true one.
    assert run.lcv[0] == honest.lcv[0]
    unfiltered, *_ = simulate([RING] * ROUNDS, **lie)
    assert unfiltered.c1_flags == [set()] * ROUNDS
    assert unfiltered.lcv[0][0] != honest.lcv[0][0]
    # In round 1 clients differ: client 0 puts its own model where the fake of client 1 was.
    assert (0, 1) in run.c1_flags[1]
    pre = dict(enumerate(run.models[1])) | {1: run.models[1][0]}
    expected = ref.aggregate({j: pre[j] for j in RING[0]}, RING[0])
    u = ref.utilities(expected, *test)["accuracy"]
    assert run.coalition_utilities[1][0][frozenset()] == u


@pytest.mark.parametrize(("normalization", "lie"), [("paper", 0.6), ("efficient", 0.2)])
def test_d2_falsifies_the_report_and_c2_catches_it(normalization, lie):
    choices = {"utility": "probability", "normalization": normalization}
    lies = choices | {"liars": [2], "amount": 0.6, "lower_others": True}
    honest, *_ = simulate([RING] * ROUNDS, **choices)
    run, *_ = simulate([RING] * ROUNDS, **lies)
    assert run.lcv == honest.lcv
    assert run.c2_flags == [set()] * ROUNDS
    assert run.distances == [[]] * ROUNDS
    for t in range(ROUNDS):
        true, told = run.lcv[t][2], run.reported[t][2]
        assert told == pytest.approx({1: true[1] - lie, 2: true[2] + lie, 3: true[3] - lie})
        assert [run.reported[t][i] for i in (0, 1, 3)] == [run.lcv[t][i] for i in (0, 1, 3)]
    assert run.phi[2, 2] > honest.phi[2, 2] + lie

    for thresholding in ("soft", "hard"):
        c2 = {"lam": 0.01, "threshold": lie, "thresholding": thresholding}
        defended, *_ = simulate([RING] * ROUNDS, **lies, **c2)
        assert defended.c2_flags == [{2}] * ROUNDS
        for t in range(ROUNDS):
            reported = defended.reported[t]
            adopted, flagged, distances = ref.detect_outliers(reported, 0.01, lie, thresholding)
            assert flagged == [False, False, True, False]
            assert defended.adopted[t] == adopted != reported
            assert defended.distances[t] == distances
        assert defended.phi[2, 2] < run.phi[2, 2] - lie


STEPS = {"batch_size": 4, "learning_rate": 0.1, "momentum": 0.9}
EVERYONE = range(N)


def federation(neighbourhoods, **choices):
    """A plain run and, of the same federation, what `retrain` and its like begin with."""
    run, data, test, orders = simulate(neighbourhoods, **choices)
    return run, (run.models[0][0], data, test, neighbourhoods, orders)


def centralised():
    """The start, the data and the orders of the same federation for `fedavg`, and its tests."""
    _, (theta0, data, test, _, orders) = federation([COMPLETE] * ROUNDS)
    return (theta0, data, orders), test


@pytest.mark.parametrize("utility", ["accuracy", "loss", "probability"])
def test_retraining_by_all_is_the_plain_run_and_by_none_is_the_start(utility):
    run, given = federation([RING, ALONE, COMPLETE])
    expected = [ref.utilities(theta, *given[2])[utility] for theta in run.models[ROUNDS]]
    assert ref.retrain(*given, EVERYONE, utility=utility, **STEPS) == pytest.approx(expected)
    start = ref.utilities(given[0], *given[2])[utility]
    assert ref.retrain(*given, [], utility=utility, **STEPS) == pytest.approx([start] * N)
    assert all(u != start for u in expected)


def test_dummies_hand_on_what_others_learned():
    # Arcs 0 -> 1 -> 2 -> 3, and only client 0 trains.
    chain = [{0: 5.0}, {0: 1.0, 1: 3.0}, {1: 1.0, 2: 1.0}, {2: 1.0, 3: 1.0}]
    _, given = federation([chain, chain])
    theta0, data, test, _, orders = given
    first = ref.train(theta0, *data[0], orders[0][0], 4, 0.1, 0.9)
    second = ref.train(first, *data[0], orders[1][0], 4, 0.1, 0.9)
    of_1 = ref.aggregate({0: first, 1: theta0}, chain[1])
    final = [
        second,
        ref.aggregate({0: second, 1: of_1}, chain[1]),
        ref.aggregate({1: of_1, 2: theta0}, chain[2]),
        theta0,
    ]
    expected = [ref.utilities(theta, *test)["loss"] for theta in final]
    found = ref.retrain(*given, {0}, utility="loss", **STEPS)
    assert found == pytest.approx(expected, abs=1e-12)
    assert len(set(found)) == 4


def test_shapley_by_retraining_credits_those_who_can_reach():
    # Arcs 0 -> 1 -> 2, and client 3 by itself; two rounds are just enough from 0 to 2.
    chain = [{0: 1.0}, {0: 1.0, 1: 3.0}, {1: 1.0, 2: 1.0}, {3: 1.0}]
    run, given = federation([chain, chain])
    phi = ref.shapley_by_retraining(*given, utility="loss", **STEPS)
    reaches = [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [0, 0, 0, 1]]
    np.testing.assert_array_equal(phi != 0, np.array(reaches, dtype=bool))
    start = ref.utilities(given[0], *given[2])["loss"]
    gains = [ref.utilities(theta, *given[2])["loss"] - start for theta in run.models[-1]]
    np.testing.assert_allclose(phi.sum(axis=1), gains, atol=1e-12)
    # One round is not.
    run, given = federation([chain])
    assert ref.shapley_by_retraining(*given, utility="loss", **STEPS)[2, 0] == 0


def test_in_one_round_retraining_is_the_local_contribution_vector():
    # All start alike, so that pre-training models are what dummies would send.
    run, given = federation([RING], utility="loss", normalization="efficient")
    phi = ref.shapley_by_retraining(*given, utility="loss", **STEPS)
    np.testing.assert_allclose(phi, run.phi, atol=1e-12)
    weights = [[RING[i].get(j, 0.0) for j in range(N)] for i in range(N)]
    np.testing.assert_array_equal(run.phi != 0, np.array(weights) > 0)


def test_coalition_models_of_fedavg_by_hand():
    before = constant(1.0, 1.0)
    updates = {0: constant(8.0, 0.0), 1: constant(0.0, 8.0), 2: constant(4.0, 4.0)}
    sizes = [1, 3, 4]
    for coalition, bias in [
        ((), (1, 1)),
        ((0,), (9, 1)),
        ((0, 1), (1 + 8 / 4, 1 + 3 * 8 / 4)),
        ((2, 0), (1 + (4 * 4 + 8) / 5, 1 + 4 * 4 / 5)),
        ((0, 1, 2), (1 + (8 + 16) / 8, 1 + (24 + 16) / 8)),
    ]:
        model = ref.round_coalition_model(before, updates, sizes, coalition)
        assert_same_params(model, constant(*bias), atol=1e-15)
    assert_same_params(before, constant(1.0, 1.0))

    rounds = [updates, {0: constant(-8.0, 0.0), 1: constant(4.0, 0.0), 2: constant(0.0, 0.0)}]
    for coalition, bias in [((), (1, 1)), ((0,), (1, 1)), ((0, 1), (1 + 2 - 2 + 3, 1 + 6))]:
        model = ref.reconstructed_model(before, rounds, sizes, coalition)
        assert_same_params(model, constant(*bias), atol=1e-15)


def test_fedavg_and_its_shapley_value_by_hand():
    # On a feature of zero only the bias learns: from (0, 0) the gradient is -+1/2.
    data = [(np.zeros((1, 1)), np.array([0])), (np.zeros((3, 1)), np.array([1, 1, 1]))]
    orders = [[[np.arange(1)], [np.arange(3)]]]
    settings = {"batch_size": 3, "learning_rate": 0.2, "momentum": 0.9}
    theta0 = constant(0.0, 0.0)
    for coalition, bias in [((), 0.0), ((0,), 0.1), ((1,), -0.1), ((0, 1), -0.05)]:
        models, updates = ref.fedavg(theta0, data, orders, coalition, **settings)
        assert len(models) == 2
        assert_same_params(models[0], theta0)
        assert_same_params(models[1], constant(bias, -bias), atol=1e-15)
        assert [set(delta) for delta in updates] == [set(coalition)]
        for i in coalition:
            assert_same_params(updates[0][i], constant(*[(0.1, -0.1), (-0.1, 0.1)][i]), atol=1e-15)
    # A tie says 0 and is right on three of four; so does client 0, and with client 1 all say 1.
    phi = ref.fedavg_shapley(theta0, data, (X4, Y4), orders, **settings)
    np.testing.assert_allclose(phi, [0.0, -0.5], atol=1e-15)


def test_fedavg_by_one_is_its_own_training_and_by_none_stands_still():
    given, _ = centralised()
    theta0, data, orders = given
    models, updates = ref.fedavg(*given, [2], **STEPS)
    theta = theta0
    for t in range(ROUNDS):
        before, theta = theta, ref.train(theta, *data[2], orders[t][2], 4, 0.1, 0.9)
        assert_same_params(models[t + 1], theta, atol=1e-14)
        (delta,) = updates[t].values()
        difference = [(a - c, b - d) for (a, b), (c, d) in zip(theta, before, strict=True)]
        assert_same_params(delta, difference, atol=1e-14)
    models, updates = ref.fedavg(*given, [], **STEPS)
    assert updates == [{}] * ROUNDS
    for model in models:
        assert_same_params(model, theta0)


def test_fedavg_by_all_is_the_complete_graph_and_its_updates_add_up():
    (theta0, data, orders), test = centralised()
    sizes = [len(y) for _, y in data]
    by_size = [[{j: float(sizes[j]) for j in EVERYONE}] * N] * ROUNDS
    run, *_ = simulate(by_size)
    models, updates = ref.fedavg(theta0, data, orders, EVERYONE, **STEPS)
    for t in range(ROUNDS + 1):
        assert_same_params(models[t], run.models[t][0], atol=1e-14)
    last = ref.round_coalition_model(models[-2], updates[-1], sizes, EVERYONE)
    assert_same_params(last, models[-1])
    whole = ref.reconstructed_model(theta0, updates, sizes, EVERYONE)
    assert_same_params(whole, models[-1], atol=1e-14)
    # By some it is not: dummies keep their weight there, and here others take it over.
    some, _ = ref.fedavg(theta0, data, orders, [1, 2], **STEPS)
    u = ref.utilities(some[-1], *test)["loss"]
    with_dummies = ref.retrain(theta0, data, test, by_size, orders, [1, 2], utility="loss", **STEPS)
    assert abs(with_dummies[0] - u) > 0.01


def test_fedavg_shapley_is_efficient_and_in_one_round_that_of_the_reconstruction():
    (theta0, data, orders), test = centralised()
    phi = ref.fedavg_shapley(theta0, data, test, orders, utility="loss", **STEPS)
    models, _ = ref.fedavg(theta0, data, orders, EVERYONE, **STEPS)
    start, end = (ref.utilities(theta, *test)["loss"] for theta in (models[0], models[-1]))
    assert phi.sum() == pytest.approx(end - start, abs=1e-12)
    assert (phi != 0).all()

    _, updates = ref.fedavg(theta0, data, orders[:1], EVERYONE, **STEPS)
    sizes = [len(y) for _, y in data]
    u = {}
    for s in ref.coalitions(EVERYONE):
        model = ref.reconstructed_model(theta0, updates, sizes, s)
        u[s] = ref.utilities(model, *test)["loss"]
    expected = ref.shapley(u, EVERYONE, "efficient")
    phi = ref.fedavg_shapley(theta0, data, test, orders[:1], utility="loss", **STEPS)
    np.testing.assert_allclose(phi, list(expected.values()), atol=1e-12)


def test_arguments_that_make_no_sense_are_refused():
    with pytest.raises(ValueError, match="both lam and threshold"):
        simulate([RING], lam=0.1)
    with pytest.raises(ValueError, match="takes a fake"):
        simulate([RING], lie_models=True, liars=[0])
    with pytest.raises(ValueError, match="own client"):
        simulate([[{0: 1.0}] * N])
