"""Cosine distances printed in the paper's Tables I and II."""

DISTRIBUTIONS = ("iid", "non_iid", "sizes", "noisy_images", "noisy_labels")
TOPOLOGIES = ("regular", "star", "line")

_TABLE_1 = {
    "cifar10": {
        "MR": (0.127, 0.869, 0.116, 0.320, 1.059),
        "TMR": (0.124, 0.458, 0.109, 0.047, 0.049),
        "GTG-Shapley": (0.032, 0.182, 0.404, 0.268, 0.015),
        "OR": (0.026, 0.023, 0.007, 0.148, 0.055),
        "TRIP-Shapley": (0.047, 0.244, 0.044, 0.166, 0.026),
    },
    "fashion_mnist": {
        "MR": (0.841, 0.744, 0.328, 0.210, 0.009),
        "TMR": (0.072, 0.036, 0.331, 0.137, 0.008),
        "GTG-Shapley": (0.001, 0.046, 0.029, 0.389, 0.003),
        "OR": (0.025, 0.011, 0.075, 0.062, 0.087),
        "TRIP-Shapley": (0.007, 0.039, 0.022, 0.121, 0.014),
    },
}
_TABLE_2 = {"cifar10": (0.047, 0.017, 0.012), "fashion_mnist": (0.007, 0.027, 0.009)}

TABLE_1 = {
    (dataset, distribution, method): value
    for dataset, methods in _TABLE_1.items()
    for method, values in methods.items()
    for distribution, value in zip(DISTRIBUTIONS, values, strict=True)
}
"""Table I by data set, distribution and method; the topology is a 4-regular graph."""

TABLE_2 = {
    (dataset, topology, "TRIP-Shapley"): value
    for dataset, values in _TABLE_2.items()
    for topology, value in zip(TOPOLOGIES, values, strict=True)
}
"""Table II by data set, topology and method; the distribution is iid."""
