"""Who contributed what in decentralised federated learning: TRIP-Shapley in JAX.

Names are imported when they are first asked for, from where `__init__.pyi` says. `trip_jax.node`,
`trip_jax.deployment` and other modules that need no JAX are those of the distribution trip-node.
"""

from typing import Any

import lazy_loader

from trip_jax.shared import install

__version__ = "0.2.0"

install()
_named, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__all__ += ["__version__"]


_OLD_NAMES = {
    "Exchange": "trip_jax.ChannelConfig",
    "Federation": "trip_jax.Partition",
    "Reporting": "trip_jax.ProtocolConfig",
}


def __getattr__(name: str) -> Any:
    if name in _OLD_NAMES:
        from trip_jax.settings.renamed import renamed

        return renamed(__name__, **_OLD_NAMES)(name)
    if name in __all__:
        from trip_jax.settings import environment  # noqa: F401  # before JAX
    return _named(name)
