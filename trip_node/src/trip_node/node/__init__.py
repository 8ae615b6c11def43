"""The half of TRIP-Shapley that runs where the models are: local contributions in NumPy.

Nothing here imports JAX. Models are PyTorch state_dicts, mappings or lists of arrays, or
safetensors files.
"""

from trip_node.node.evaluator import LocalEvaluator
from trip_node.node.predictions import Predictions
from trip_node.node.predictor import LocalPredictor
from trip_node.node.report import Report

__all__ = ["LocalEvaluator", "LocalPredictor", "Predictions", "Report"]
