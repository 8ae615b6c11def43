"""Contributions in decentralised federated learning, where the models are: nodes and coordinator.

Everything here runs on NumPy and SciPy. A node tells local contributions of PyTorch or other models
(`trip_node.node`). A coordinator traces them through the federation, from tables or as a service
(`trip_node.deployment`). The simulator of such federations is the distribution trip-jax.
"""

__version__ = "0.2.0+clone"
