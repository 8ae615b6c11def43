"""Trackers: what tells TensorBoard, Weights & Biases or MLflow of a run while it goes on."""

from trip_jax.tracking import mlflow, tensorboard, wandb  # noqa: F401 - registered
from trip_jax.tracking.tracked import Tracked
from trip_jax.tracking.tracker import TRACKERS, Tracker

__all__ = ["TRACKERS", "Tracked", "Tracker"]
