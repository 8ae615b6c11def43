"""How numbers become colours: the scale, its bar, and texts that can be read on a colour."""

from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import ListedColormap, Normalize

from trip_jax.results.figure_style import TICKS


def colour_scale(values: np.ndarray, clipped: float) -> dict[str, Any]:
    """A colour map, and limits that leave out `clipped` per cent at either end of non-zero values.

    Where signs are mixed, 0 is white and equal distances from it are equally strong.
    """
    shown = values[np.isfinite(values)]
    other = shown[shown != 0]
    low, high = np.percentile(other, [clipped, 100 - clipped]).tolist() if other.size else (0, 0)
    mixed = (other < 0).any() and (other > 0).any()
    if mixed or low == high or other.size < shown.size:
        low, high = min(low, 0), max(high, 0)
    if not mixed:
        return {"cmap": "viridis", "norm": Normalize(low, high if high > low else 1)}
    shades = np.linspace(low, high, 256) / (2 * max(-low, high)) + 0.5
    return {"cmap": ListedColormap(colormaps["RdBu"](shades)), "norm": Normalize(low, high)}


def add_colour_bar(axes: Axes, drawn: ScalarMappable, label: str) -> None:
    """A colour bar, pointed where values lie beyond its end."""
    values, (low, high) = np.asarray(drawn.get_array()), drawn.get_clim()
    extend = ("neither", "min", "max", "both")[(values < low).any() + 2 * (values > high).any()]
    bar = axes.figure.colorbar(drawn, ax=axes, fraction=0.05, pad=0.02, extend=extend)
    bar.set_label(label, size=8)
    bar.ax.tick_params(**TICKS)


def write_on(axes: Axes, x: float, y: float, text: str, colour: np.ndarray) -> None:
    """A text in black or white, whichever can be read on the colour."""
    ink = "white" if np.dot(colour[:3], (0.299, 0.587, 0.114)) < 0.45 else "black"
    axes.text(x, y, text, size=6.5, ha="center", va="center_baseline", color=ink)
