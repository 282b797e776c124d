"""The interface of the Python ampere (github.com/adam-mcdaniel/ampere), implemented with the attribution of this ampere.

The page "Coming from another tool" of the book explains it.
"""

from __future__ import annotations

import json
import os
import re
from enum import Enum
from typing import TYPE_CHECKING, Any, Callable, Iterable, Mapping, NamedTuple, Sequence

from ._program import Error, ampere
from ._results import Frame, _Files, _module, attribute

if TYPE_CHECKING:
    import pandas

    Path = str | os.PathLike[str]
    Configs = Mapping[str | re.Pattern[str], "MetricConfig"]

__all__ = ["AmpereSession", "Ensemble", "MetricConfig", "MetricType", "connect"]

# The number of points of a metric over the whole run.
_POINTS = 1000


class MetricType(Enum):
    """What the values of a metric are: watts at a moment, or joules since some start."""

    INSTANTANEOUS = "instantaneous"
    CUMULATIVE = "cumulative"


class MetricConfig(NamedTuple):
    """How the values of a metric are read: their kind, and the joules or watts for a raw value of 1.

    `interpolation_kind` has no effect: the metric's mode in the trace defines for which time a value is valid.
    """

    kind: MetricType
    scale_factor: float = 1.0
    interpolation_kind: str = "linear"


class Rank(NamedTuple):
    """A rank of a node, for functions that choose the ranks of a metric."""

    node: str
    name: str


class Metric(NamedTuple):
    """A device over time: its joules since the start, or its watts if the metric is a power.

    `times` are in seconds since the start of the trace.
    """

    name: str
    kind: MetricType
    times: Any
    values: Any


class Node:
    """The ranks of a node of a trace, and the metrics of that node."""

    def __init__(self, name: str, ranks: Iterable[str], trace: str, configs: Configs):
        self.name = name
        self.ranks = [Rank(name, rank) for rank in ranks]
        self._trace = trace
        self._configs = configs
        self._metrics: dict[str, Metric] | None = None

    @property
    def metrics(self) -> dict[str, Metric]:
        """The metrics that are devices, by name. The trace is attributed for them when this is first read."""
        if self._metrics is None:
            files = _Files()
            sections = [_section(_pattern(key), config) for key, config in self._configs.items()]
            run = attribute(self._trace, config=_settings(files, sections))
            paths = run.call_paths.to_pandas()
            own = set(paths.node[paths.location_group.isin([rank.name for rank in self.ranks])])
            over_time = run.timeline(by="device", bins=_POINTS).to_pandas()
            self._metrics = {}
            for device in run.summary["devices"]:
                if device["node"] in own:
                    rows = over_time[(over_time.node == device["node"]) & (over_time.device == device["name"])]
                    config = _config_of(device["metric"], self._configs)
                    is_power = device["energy"] == "integrated" if config is None else config.kind is MetricType.INSTANTANEOUS
                    kind = MetricType.INSTANTANEOUS if is_power else MetricType.CUMULATIVE
                    values = rows.watts if is_power else rows.joules.cumsum()
                    times = rows.start if is_power else rows.start + rows.seconds
                    self._metrics[device["metric"]] = Metric(device["metric"], kind, times.to_numpy(), values.to_numpy())
        return self._metrics

    def _calls(self, metric: str, ranks: Sequence[Rank], sharing: str) -> pandas.DataFrame:
        numbers = []
        for rank in ranks:
            number = re.search(r"\d+$", rank.name)
            if number is None:
                raise Error(f"the rank {rank.name!r} has no number at its end: name ranks as the trace does, 'MPI Rank 0'")
            numbers.append(int(number[0]))
        section = _section(re.escape(metric), _config_of(metric, self._configs)) + f"ranks = {numbers}\n"
        files = _Files()
        config = _settings(files, [section], f'locations = "main"\nsharing = "{sharing}"\npolicy = "time_sliced"\n')
        path = os.path.join(files.name, "calls.parquet")
        ampere("attribute", f"--config={config}", "--view=ranks", "--calls", path, "--", self._trace)
        calls = Frame(path=path, keep=files).to_pandas()
        names = {rank.name for rank in ranks}
        return calls[calls["rank"].isin(names)]


def _config_of(metric: str, configs: Configs) -> MetricConfig | None:
    if metric in configs:
        return configs[metric]
    matching = (config for key, config in configs.items() if re.fullmatch(_pattern(key), metric))
    return next(matching, None)


def _pattern(key: str | re.Pattern[str]) -> str:
    """Returns a pattern for the whole names of the metrics that a key of the configurations means.

    As in the Python ampere, a text that begins with ^ is a regular expression, and an expression has to match only the start of
    a name.
    """
    if isinstance(key, str):
        return f"(?:{key}).*" if key.startswith("^") else re.escape(key)
    return f"{'(?i)' if key.flags & re.IGNORECASE else ''}(?:{key.pattern}).*"


def _section(pattern: str, config: MetricConfig | None) -> str:
    lines = ["[[device]]", "name = \"$0\"", f"metric = {json.dumps(pattern, ensure_ascii=False)}"]
    if config is not None:
        lines += [f'kind = "{config.kind.value}"', f"scale = {float(config.scale_factor)!r}"]
    return "\n".join(lines) + "\n"


def _settings(files: _Files, sections: Iterable[str], attribution: str = "") -> str:
    path = os.path.join(files.name, "ampere.toml")
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(sections) + f"\n[attribution]\n{attribution}")
    return path


class EnsembleRun:
    """A trace with its nodes."""

    def __init__(self, path: str, nodes: list[Node]):
        self.path = path
        self.name = os.path.basename(path)
        self.nodes = nodes


def _all_ranks(_metric: str, ranks: list[Rank]) -> list[Rank]:
    return ranks


class Ensemble:
    """Several traces, whose metrics are attributed to single calls."""

    def __init__(self, runs: list[EnsembleRun]):
        self.runs = runs

    @staticmethod
    def from_trace_paths(
        trace_paths: Iterable[Path],
        node_ranks: Mapping[str, Sequence[str]],
        metric_configs: Configs | None = None,
        max_workers: int | None = None,
    ) -> Ensemble:
        """Takes OTF2 traces (their directories or traces.otf2) with these ranks, which are named as in the traces.

        `max_workers` has no effect: `ampere attribute` uses all cores.
        """
        runs = []
        for trace in trace_paths:
            path = os.path.abspath(trace)
            if not os.path.exists(path):
                raise Error(f"{path}: no such trace")
            nodes = [Node(name, ranks, path, metric_configs or {}) for name, ranks in node_ranks.items()]
            runs.append(EnsembleRun(path, nodes))
        return Ensemble(runs)

    def attribute(
        self,
        metric_name: str,
        topology_resolver: Callable[[str, list[Rank]], list[Rank]] = _all_ranks,
        concurrency_mode: str = "shared",
        strategy: str = "inclusive",
        output_mode: str = "quantity",
    ) -> pandas.DataFrame:
        """Returns a row for each call of the chosen ranks' main threads, with its joules or its mean watts in the column Value.

        A call that ended before the metric's first sample has 0, as in the Python ampere. A call that uses nothing of the metric
        has NaN.
        """
        for name, value, known in (
            ("concurrency_mode", concurrency_mode, ("shared", "independent")),
            ("strategy", strategy, ("inclusive", "exclusive")),
            ("output_mode", output_mode, ("quantity", "rate", "mean")),
        ):
            if value not in known:
                raise ValueError(f"{name}={value!r} is none of {', '.join(known)}")
        frames = []
        for run in self.runs:
            for node in run.nodes:
                ranks = topology_resolver(metric_name, node.ranks)
                if not ranks:
                    continue
                calls = node._calls(metric_name, ranks, concurrency_mode)
                if calls[f"{strategy}_joules"].notna().any():
                    frames.append(_as_there(calls, run.name, node.name, strategy, output_mode))
        if not frames:
            raise KeyError(f"no call has joules of {metric_name!r}: is it a metric of the trace, and are the ranks named as in the trace?")
        return _module("pandas").concat(frames, ignore_index=True)


def _as_there(calls: pandas.DataFrame, run: str, node: str, strategy: str, mode: str) -> pandas.DataFrame:
    """Returns calls in the columns that the Python ampere has."""
    pandas = _module("pandas")
    value = calls[f"{strategy}_joules"]
    if mode != "quantity":
        seconds = (calls.end - calls.start) / 1e9
        value = value / seconds.where(seconds > 0)
    columns = {"Start Time": calls.start / 1e9, "End Time": calls.end / 1e9, "Name": calls.region, "Depth": calls.depth}
    columns.update({"Value": value, "Rank": calls["rank"], "Node": node, "Run": run})
    # The categories of several runs differ and cannot be concatenated, so names become plain objects.
    return pandas.DataFrame(columns).astype({"Name": object, "Rank": object})


def connect(server: str = "localhost", port: int = 5555) -> None:
    """Does nothing: no server is needed."""


class AmpereSession:
    """Does nothing: no server is needed."""

    def __init__(self, server: str = "localhost", port: int = 5555, timeout: int = 0):
        pass

    def __enter__(self) -> AmpereSession:
        return self

    def __exit__(self, *exception: object) -> None:
        pass
