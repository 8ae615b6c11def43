"""Files that may come from elsewhere: they are read, and lead to no other file."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trip_jax.settings.capacity import require_capacity
from trip_jax.settings.errors import InvalidSetting

if TYPE_CHECKING:
    import h5py
    import xarray


def read_json(path: Path) -> Any:
    """The value that a JSON file holds, as Python objects.

    Raises:
        OSError: it can't be read.
        ValueError: it is no regular file, or not JSON.
    """
    try:
        return json.loads(read_text(path))
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def read_text(path: Path) -> str:
    """The text of a file in UTF-8, which must be a regular file.

    Raises:
        OSError: it can't be read.
        ValueError: it is no regular file, or not UTF-8.
    """
    _require_regular(path)
    return path.read_text(encoding="utf-8")


def load_netcdf(path: Path) -> "xarray.Dataset":
    """All that a NetCDF file in HDF5 holds.

    Raises:
        OSError, ValueError, LookupError, RuntimeError, TypeError: it is damaged.
        InvalidSetting: it leads to other files or plugins, or is larger than memory.
    """
    import xarray

    _refuse_foreign(path)
    return xarray.load_dataset(path, engine="h5netcdf", phony_dims="sort")


def netcdf_attributes(path: Path) -> dict[str, Any]:
    """The attributes of a NetCDF file in HDF5; raises as `load_netcdf` does."""
    import h5py

    _require_regular(path)
    with h5py.File(path) as file:
        return dict(file.attrs)


def require_schema(path: Path, found: object, known: str) -> None:
    """Refuse a file of a form that this version does not know; raises InvalidSetting."""
    if found != known:
        raise InvalidSetting(
            f"{path} has the schema {str(found)[:50]!r}, and this version reads {known!r}: read it "
            "with the version of trip-jax that wrote it, or a later one."
        )


def _require_regular(path: Path) -> None:
    """Refuse pipes and devices, whose reading may never end; raises ValueError."""
    if path.exists() and not path.is_file():
        raise ValueError("it is no regular file")


def _refuse_foreign(path: Path) -> None:
    """Refuse an HDF5 file that HDF5 would follow out of itself.

    Links to other files, raw data in other files, virtual data sets and filters that are plugins
    all make HDF5 open what the file names.
    """
    import h5py

    _require_regular(path)
    size = 0
    with h5py.File(path) as file:
        file.attrs.get("_nc3_strict")  # where h5netcdf fails it fails once more when collected
        links: list[tuple[bytes, int]] = []
        file.id.links.visit(lambda name, link: links.append((name, link.type)), info=True)
        for name, kind in links:
            if kind != h5py.h5l.TYPE_HARD:
                raise _leads_elsewhere(path, name, "is a link")
            if isinstance(one := file[name], h5py.Dataset):
                if reason := _outside(one):
                    raise _leads_elsewhere(path, name, reason)
                size += one.nbytes
    require_capacity(size, f"read {path} on a machine with more")


def _outside(data: "h5py.Dataset") -> str | None:
    """How reading a data set would lead out of its file; None: it does not."""
    import h5py

    how = data.id.get_create_plist()
    if how.get_external_count():
        return "has its data in another file"
    if how.get_layout() == h5py.h5d.VIRTUAL:
        return "is made of other data sets"
    filters = {how.get_filter(k)[0] for k in range(how.get_nfilters())}
    built_in = {
        h5py.h5z.FILTER_DEFLATE,
        h5py.h5z.FILTER_SHUFFLE,
        h5py.h5z.FILTER_FLETCHER32,
        h5py.h5z.FILTER_NBIT,
        h5py.h5z.FILTER_SCALEOFFSET,
        h5py.h5z.FILTER_LZF,  # h5py brings it
    }
    if filters - built_in:
        return "needs a filter that is a plugin"
    return None


def _leads_elsewhere(path: Path, name: bytes, reason: str) -> InvalidSetting:
    return InvalidSetting(
        f"{path} is not read, as {name.decode(errors='replace')!r} in it {reason}: ask for a file "
        "that holds all its data itself."
    )
