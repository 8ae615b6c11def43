"""The figures of the roofline: kept as CSV one by one, told as Markdown."""

from collections.abc import Mapping
from math import isnan, nan
from typing import Any, TypeAlias

import jax
import pandas

from experiments.benchmarks.timing import OURS, rate
from experiments.harness import report
from experiments.harness.report import Report
from trip_jax.settings.errors import InvalidSetting

Row: TypeAlias = dict[str, Any]

CASE = ("work", "clients", "who", "form", "precision", "models_at_once")
"""What tells apart what is measured."""

MEASURED = {"median": nan, "least": nan, "most": nan, "of_floor": nan, "idle": nan}
SAID = {"bound": "", "note": ""}

HEAD = (
    "work | clients |  | form | precision | models at once | rate (range) | of the floor | "
    "floor of | idle | GFLOP | GB | products | kernels"
)
LINE = (
    "{work} | {clients} | {who} | {form} | {precision} | {at_once} | {rate} | {share} | {bound} | "
    "{idle} | {gflop:,.0f} | {gb} | {products} | {kernels}"
)
DRY_HEAD = (
    "work | clients | form | precision | models at once | GFLOP | products | operations for CUDA | "
    "for a TPU | kernels on {device} | GB there"
)
DRY_LINE = (
    "{work} | {clients} | {form} | {precision} | {models_at_once} | {gflop:,.0f} | {products:,.0f} "
    "| {cuda:,.0f} | {tpu:,.0f} | {kernels} | {gb}"
)


class Figures:
    """Rows, each written when it is there; those of an earlier call are read.

    Args:
        device: its kind.
        dry: whether they are counts alone.

    Raises:
        InvalidSetting: the rows of an earlier call are of another device or version of JAX.
    """

    def __init__(self, written: Report, device: str, dry: bool):
        self._written, self._dry, self.text = written, dry, ""
        self._about = {"device": device, "jax": jax.__version__}
        self._rows: list[Row] = []
        path = written.file(".csv")
        if path.exists():
            words: dict[str, Any] = dict.fromkeys((*CASE, "program", *SAID, *self._about), str)
            words |= dict.fromkeys(("clients", "models_at_once"), int)
            frame = pandas.read_csv(
                path,
                dtype=words,
                keep_default_na=False,
                na_values={name: [""] for name in MEASURED},
            )
            self._rows = frame.drop(columns="command").to_dict("records")
            for name, value in self._about.items():
                if others := {row[name] for row in self._rows} - {value}:
                    raise InvalidSetting(
                        f"{path} has figures of {name} {others.pop()}, and here it is {value}: "
                        "choose another folder by out=DIR."
                    )
            self._write()

    def has(self, case: Mapping[str, Any]) -> bool:
        """Whether a case is there, wholly."""
        wanted = {"who": OURS} | dict(case)
        return any(all(row[name] == wanted[name] for name in CASE) for row in self._rows)

    def keep(self, *rows: Row) -> None:
        """Write the rows of one measurement to the file of figures."""
        self._rows += [MEASURED | SAID | row | self._about for row in rows]
        self._write()
        row = self._rows[-1]
        if not isnan(row["median"]):
            case = ", ".join(str(row[name]) for name in CASE)
            print(f"{case}: {rate(row['median'])} {row['unit']}", flush=True)

    def _write(self) -> None:
        frame = pandas.DataFrame(self._rows)
        device, version = self._about.values()
        title = f"the paper's CNN, images of 28x28x1; {device}, jax {version}"
        lines = report.table(HEAD, LINE, map(_told, self._rows))
        if self._dry:
            lines = report.table(DRY_HEAD.format(device=device), DRY_LINE, _told_dry(frame))
        self.text = self._written.write(frame, "Roofline", title, lines, number=None)


def _told(row: Row) -> Row:
    measured = "{median} ({least} to {most})".format_map(
        {name: rate(row[name]) for name in ("median", "least", "most")}
    )
    known = not isnan(row["median"])
    return row | {
        "at_once": row["models_at_once"] or "",
        "rate": f"{measured} {row['unit']}" if known else row["note"],
        "share": f"{row['of_floor']:.0%}" if known else "",
        "idle": "" if isnan(row["idle"]) else f"{row['idle']:.0%}",
        "gflop": row["flop"] / 1e9,
        "gb": f"{row['bytes'] / 1e9:,.0f}" if row["bytes"] else "",
        "products": f"{row['products']:,.0f}" if row["products"] else "",
        "kernels": f"{row['launches']:,.0f}" if row["launches"] else "",
    }


def _told_dry(frame: pandas.DataFrame) -> list[Row]:
    """The lines of a dry run: for each case what its programs would do."""
    lines = []
    for case, rows in frame.groupby(list(CASE), sort=False):
        of = rows.set_index("program")
        told = dict(zip(CASE, case, strict=True)) | {"kernels": "", "gb": ""}
        for platform in ("cuda", "tpu"):
            told[platform] = of.launches[f"lowered for {platform}"]
        first = rows.iloc[0]
        told |= {"gflop": first.flop / 1e9, "products": first.products}
        if "compiled" in of.index:
            told["kernels"] = f"{of.launches['compiled']:,.0f}"
            told["gb"] = f"{of.bytes['compiled'] / 1e9:,.0f}"
        lines.append(told)
    return lines
