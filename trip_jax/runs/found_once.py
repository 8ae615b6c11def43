"""HDF5 files whose parts are looked up once, so that reading takes half of the time."""

from typing import Any

import h5py


class FoundOnce(h5py.File):  # type: ignore[misc]
    """An HDF5 file, open for reading, that looks each of its groups and variables up once.

    h5netcdf asks for each of them some fifty times while it reads a file.
    """

    def __getitem__(self, name: Any) -> Any:
        """A group or variable by its name or reference, as h5py gives it."""
        if not isinstance(name, str):
            return super().__getitem__(name)
        found: dict[str, Any] = self.__dict__.setdefault("_found", {})
        if name not in found:
            found[name] = super().__getitem__(name)
        return found[name]
