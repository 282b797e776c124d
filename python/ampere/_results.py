"""Results of runs as tables, which become data frames of pandas, Polars or Arrow. None of these is imported before it is asked for."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import weakref
from html import escape
from typing import TYPE_CHECKING, Any

from ._program import Error, ampere

if TYPE_CHECKING:
    import dask.dataframe
    import pandas
    import polars
    import pyarrow

    Path = str | os.PathLike[str]

__all__ = ["Frame", "Run", "attribute", "load"]

# The number of rows that a notebook shows.
_ROWS_SHOWN = 20


class _Files:
    """A temporary directory, which exists as long as a run or a table refers to it."""

    def __init__(self) -> None:
        self.name = tempfile.mkdtemp(prefix="ampere-")
        weakref.finalize(self, shutil.rmtree, self.name, ignore_errors=True)


def _module(name: str) -> Any:
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = {"dask.dataframe": "dask[dataframe]"}.get(name, name.split(".")[0])
        raise Error(f"{name} cannot be imported ({error}): pip install '{package}'") from None


class Frame:
    """A table: columns in memory, or a Parquet file that is read when a data frame is asked for.

    `path` is the file, for programs that read more than fits in memory; None for columns in memory.
    """

    def __init__(self, columns: dict[str, list[Any]] | None = None, path: str | None = None, keep: Any = None):
        self._columns = columns
        self.path = path
        # The temporary directory of the file.
        self._keep = keep

    def to_arrow(self) -> pyarrow.Table:
        """Returns a table of pyarrow. Text of a file is dictionary-encoded: a million call paths have few different names."""
        if self._columns is not None:
            return _module("pyarrow").table(self._columns)
        parquet = _module("pyarrow.parquet")
        schema = parquet.read_schema(self.path)
        text = [field.name for field in schema if str(field.type) == "string"]
        return parquet.read_table(self.path, read_dictionary=text)

    def to_pandas(self) -> pandas.DataFrame:
        """Returns a data frame of pandas. Text of a file is of the type `category`."""
        if self._columns is not None:
            return _module("pandas").DataFrame(self._columns)
        _module("pandas")
        # Without these, columns of the same type are copied into one array.
        return self.to_arrow().to_pandas(split_blocks=True, self_destruct=True)

    def to_polars(self) -> polars.DataFrame:
        """Returns a data frame of Polars."""
        polars = _module("polars")
        if self._columns is not None:
            return polars.DataFrame(self._columns, infer_schema_length=None)
        return polars.read_parquet(self.path)

    def to_dask(self) -> dask.dataframe.DataFrame:
        """Returns a data frame of Dask, which reads a file in parts.

        Keep this table as long as the data frame is used, because a temporary file is removed with the table.
        """
        frames = _module("dask.dataframe")
        if self._columns is not None:
            return frames.from_pandas(self.to_pandas(), npartitions=1)
        return frames.read_parquet(self.path)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """The Arrow PyCapsule interface, so that DuckDB and others take the table as it is."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def __len__(self) -> int:
        if self._columns is not None:
            return len(next(iter(self._columns.values()), []))
        return _module("pyarrow.parquet").ParquetFile(self.path).metadata.num_rows

    def __repr__(self) -> str:
        return f"<ampere table in {self.path}>" if self.path else f"<ampere table of {len(self)} rows>"

    def _head(self) -> dict[str, list[Any]]:
        if self._columns is not None:
            return {name: values[:_ROWS_SHOWN] for name, values in self._columns.items()}
        batches = _module("pyarrow.parquet").ParquetFile(self.path).iter_batches(_ROWS_SHOWN)
        first = next(batches, None)
        return first.to_pydict() if first is not None else {}

    def _repr_html_(self) -> str:
        head = self._head()
        cells = "".join(f"<th>{escape(name)}</th>" for name in head)
        rows = "".join(
            "<tr>" + "".join(f"<td>{escape(_shown(value))}</td>" for value in row) + "</tr>" for row in zip(*head.values())
        )
        left_out = len(self) - min(len(self), _ROWS_SHOWN)
        more = f"<p>{left_out} more rows</p>" if left_out else ""
        return f"<table><thead><tr>{cells}</tr></thead><tbody>{rows}</tbody></table>{more}"


def _shown(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _columns(rows: list[dict[str, Any]]) -> list[str]:
    """Returns the names of all columns that have a value in at least one row."""
    return list(dict.fromkeys(name for row in rows for name, value in row.items() if value is not None))


def _table(names: list[str], rows: list[dict[str, Any]]) -> Frame:
    return Frame({name: [row.get(name) for row in rows] for name in names})


class Run:
    """The results of a run, or of a trace that was attributed: see `load` and `attribute`."""

    def __init__(self, directory: str, trace: str, options: list[str], files: _Files):
        self.directory = directory
        self._trace = trace
        self._options = options
        self._files = files
        self._summary: dict[str, Any] | None = None
        # For this the program reads the whole summary, so a damaged summary is reported when a run is loaded.
        self._call_paths = self._report("call_paths.parquet", directory, ["-f", "parquet"])

    def _report(self, name: str, results: str, options: list[str]) -> Frame:
        path = os.path.join(self._files.name, name)
        ampere("report", *options, "-o", path, "--", results)
        return Frame(path=path, keep=self._files)

    @property
    def call_paths(self) -> Frame:
        """A row for each call path, location and device: the columns of `ampere report -f parquet`."""
        return self._call_paths

    @property
    def summary(self) -> dict[str, Any]:
        """The contents of summary.json."""
        if self._summary is None:
            path = os.path.join(self.directory, "summary.json") if os.path.isdir(self.directory) else self.directory
            with open(path, encoding="utf-8") as file:
                self._summary = json.load(file)
        return self._summary

    def _regions(self, of_view: str) -> Frame:
        rows = []
        for device in self.summary["devices"]:
            of_device = {"node": device["node"], "device": device["name"], "energy": device["energy"], "unit": device["unit"]}
            for view in device["views"]:
                rows += [{**of_device, "view": view["view"], **region} for region in view["regions"]]
        # The columns are those of all views, so that a table without rows has columns, too.
        return _table(_columns(rows), [row for row in rows if row["view"] == of_view])

    @property
    def regions(self) -> Frame:
        """A row for each device and region (function) of the ranks."""
        return self._regions("ranks")

    @property
    def kernels(self) -> Frame:
        """A row for each device and GPU kernel."""
        return self._regions("kernels")

    @property
    def devices(self) -> Frame:
        """A row for each device, with the attributed, idle and lost joules of each view."""
        rows = []
        for device in self.summary["devices"]:
            row = {name: value for name, value in device.items() if not isinstance(value, (dict, list))}
            for view in device["views"]:
                for name in ("attributed_joules", "idle_joules", "lost_joules"):
                    row[f"{view['view']}_{name}"] = view[name]
            rows.append(row)
        return _table(_columns(rows), rows)

    @property
    def calls(self) -> Frame:
        """A row for each call. The trace is attributed again for it, into a temporary file: see `write_calls`."""
        return self.write_calls(os.path.join(self._files.name, "calls.parquet"))

    def write_calls(self, path: Path) -> Frame:
        """Writes a row for each call to a Parquet file, in constant memory. FILE.callpaths.parquet next to it has their call paths."""
        path = os.fspath(path)
        ampere("attribute", *self._options, "--calls", path, "--", self._trace)
        return Frame(path=path, keep=self._files)

    def timeline(self, by: str = "rank", bins: int = 100) -> Frame:
        """Returns joules and watts over time, in the columns of `ampere report -f timeline`.

        `by` is rank, device, region, waiting or balance. Joules are divided by the policy of the settings.
        """
        config = [word for word in self._options if word.startswith("--config=")]
        options = ["-f", "timeline", "--by", by, "--bins", str(bins), *config]
        return self._report(f"timeline-{by}-{bins}.parquet", self._trace, options)

    def __repr__(self) -> str:
        run = self.summary["run"]
        return f"<ampere run {run['id']}: {run['total_joules']:.6g} J ({run['energy']}) in {run['seconds']:.6g} s>"

    def _repr_html_(self) -> str:
        path = self._report("report.txt", self.directory, ["-f", "table"]).path
        with open(str(path), encoding="utf-8") as file:
            first_lines = file.read().split("\n\n", 1)[0]
        shown = ("node", "device", "view", "region", "calls", "exclusive_joules", "inclusive_joules", "exclusive_seconds")
        tables = [table._columns or {} for table in (self.regions, self.kernels)]
        rows = [dict(zip(table, row)) for table in tables for row in zip(*table.values())]
        rows.sort(key=lambda row: -(row["exclusive_joules"] or 0))
        return f"<pre>{escape(first_lines)}</pre>{_table(list(shown), rows)._repr_html_()}"


def load(directory: Path, *, config: Path | None = None) -> Run:
    """Reads the results of a run from its directory or its summary.json.

    `config` is the settings file of the run, which single calls and timelines need. The results of an interrupted run are
    finished first, as by `ampere report`.
    """
    path = os.fspath(directory)
    trace = os.path.join(path if os.path.isdir(path) else os.path.dirname(path), "traces.otf2")
    options = [f"--config={os.fspath(config)}"] if config is not None else []
    return Run(path, trace, options, _Files())


def attribute(
    trace: Path,
    *,
    config: Path | None = None,
    policy: str | None = None,
    view: str | None = None,
    threads: int | None = None,
    time: bool = False,
) -> Run:
    """Attributes the energy in an existing OTF2 trace, with the options of `ampere attribute`."""
    options = [f"--config={os.fspath(config)}"] if config is not None else []
    given = {"policy": policy, "view": view, "threads": threads}
    options += [f"--{name}={value}" for name, value in given.items() if value is not None]
    if time:
        options.append("--time")
    files = _Files()
    results = os.path.join(files.name, "results")
    ampere("attribute", *options, "-o", results, "--", os.fspath(trace))
    return Run(results, os.fspath(trace), options, files)
