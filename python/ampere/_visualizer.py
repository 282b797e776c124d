"""Pictures of calls with their joules, by matplotlib, which is imported when a picture is drawn."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Iterable, Sequence

from ._results import _module

if TYPE_CHECKING:
    import pandas

    Path = str | os.PathLike[str]

__all__ = ["Visualizer"]

# The picture is divided into this many columns. Calls of one depth that start in the same column are drawn together.
_PIXELS = 2000
# Names are written into boxes that are wider than this part of the picture.
_NAMED = 0.05
_COLOURS = "viridis"


class Visualizer:
    """Draws the tables of `Ensemble.attribute`. A picture is written to `save_path`, or else shown."""

    @staticmethod
    def plot_flamegraph(
        df: pandas.DataFrame,
        rank_filter: str,
        metric_name: str,
        title: str = "Energy Flame Graph",
        *,
        save_path: Path | None = None,
    ) -> None:
        """Draws the calls of a rank over time, each below its caller, in the colour of its value."""
        pyplot = _module("matplotlib.pyplot")
        figure, axes = pyplot.subplots(figsize=(14, 6))
        norm = _norm(df)
        _calls(axes, df[df["Rank"] == rank_filter], norm)
        _bar(figure, axes, norm, metric_name)
        axes.set(title=f"{title} - {rank_filter}", xlabel="Time (s)")
        _finish(figure, save_path)

    @staticmethod
    def plot_node_view(
        attributed_df: pandas.DataFrame,
        ranks: Sequence[str],
        metrics_data: Iterable[Any] = (),
        title: str = "Node Performance View",
        *,
        save_path: Path | None = None,
    ) -> None:
        """Draws metrics as lines that start at 0, above the calls of ranks.

        A metric is an object with a name, times and values, or a tuple of these three.
        """
        pyplot = _module("matplotlib.pyplot")
        heights = [1.0] + [1.5] * len(ranks)
        size = (14, 3 + 2 * len(ranks))
        figure, parts = pyplot.subplots(len(heights), 1, sharex=True, squeeze=False, figsize=size, height_ratios=heights)
        lines, *of_ranks = parts[:, 0]
        for metric in metrics_data:
            name, times, values = (metric.name, metric.times, metric.values) if hasattr(metric, "name") else metric
            lines.plot(times, values - values.min() if len(values) else values, label=name, linewidth=1)
        if lines.lines:
            lines.legend(fontsize="x-small")
        norm = _norm(attributed_df)
        for rank, axes in zip(ranks, of_ranks):
            _calls(axes, attributed_df[attributed_df["Rank"] == rank], norm)
            axes.set(ylabel=rank)
        _bar(figure, list(parts[:, 0]), norm, "Value")
        figure.suptitle(title)
        parts[-1, 0].set(xlabel="Time (s)")
        _finish(figure, save_path)

    @staticmethod
    def plot_heatmap(
        df: pandas.DataFrame,
        title: str = "Metric Heatmap",
        cmap: str = "viridis",
        save_path: Path | None = None,
        annot: bool = True,
        fmt: str = ".1f",
        sort_by: str = "Value",
        top_n: int = 24,
        aggregation_func: str = "mean",
    ) -> None:
        """Draws a value for each function and rank: `aggregation_func` of its calls.

        Functions are sorted by their values on the rank `sort_by`, or by the sums over all ranks if there is no such rank.
        """
        if "Rank" not in df:
            df = df.assign(Rank="All")
        matrix = df.pivot_table(index="Name", columns="Rank", values="Value", aggfunc=aggregation_func)
        order = matrix[sort_by] if sort_by in matrix else matrix.sum(axis=1)
        matrix = matrix.loc[order.sort_values(ascending=False).index[:top_n]]
        pyplot = _module("matplotlib.pyplot")
        figure, axes = pyplot.subplots(figsize=(12, 8))
        image = axes.imshow(matrix, cmap=cmap, aspect="auto")
        figure.colorbar(image)
        axes.set_xticks(range(len(matrix.columns)), matrix.columns, rotation=45, ha="right")
        axes.set_yticks(range(len(matrix)), matrix.index)
        if annot:
            for row, values in enumerate(matrix.to_numpy()):
                for column, value in enumerate(values):
                    # A function that a rank never called has no value.
                    text = "" if value != value else format(value, fmt)
                    axes.text(column, row, text, ha="center", va="center", fontsize="small")
        axes.set_title(title)
        _finish(figure, save_path)

    @staticmethod
    def plot_distribution(
        attributed_df: pandas.DataFrame,
        metric_name: str,
        bins: int = 50,
        title: str = "Metric Distribution",
        *,
        save_path: Path | None = None,
    ) -> None:
        """Draws a histogram of the values of all calls."""
        figure, axes = _module("matplotlib.pyplot").subplots()
        axes.hist(attributed_df["Value"].dropna(), bins=bins)
        axes.set(title=f"{title}: {metric_name}", xlabel=metric_name, ylabel="Calls")
        _finish(figure, save_path)


def _norm(df: pandas.DataFrame) -> Any:
    return _module("matplotlib.colors").Normalize(df["Value"].min(), df["Value"].max())


def _bar(figure: Any, axes: Any, norm: Any, label: str) -> None:
    figure.colorbar(_module("matplotlib.cm").ScalarMappable(norm, _COLOURS), ax=axes, label=label)


def _calls(axes: Any, calls: pandas.DataFrame, norm: Any) -> None:
    """Draws calls as boxes. Calls that start in the same column share a box, which has the largest of their values."""
    if calls.empty:
        axes.text(0.5, 0.5, "no calls", ha="center", transform=axes.transAxes)
        return
    first, last = calls["Start Time"].min(), calls["End Time"].max()
    pixel = (last - first) / _PIXELS or 1.0
    boxes = calls.assign(pixel=((calls["Start Time"] - first) / pixel).astype(int)).groupby(["Depth", "pixel"])
    boxes = boxes.agg({"Start Time": "min", "End Time": "max", "Value": "max", "Name": "first"}).reset_index()
    widths = (boxes["End Time"] - boxes["Start Time"]).clip(lower=pixel)
    colours = _module("matplotlib").colormaps[_COLOURS](norm(boxes["Value"].to_numpy(float)))
    axes.barh(boxes["Depth"], widths, left=boxes["Start Time"], height=1.0, color=colours)
    for left, width, depth, name in zip(boxes["Start Time"], widths, boxes["Depth"], boxes["Name"]):
        if width > _NAMED * (last - first):
            axes.text(left + width / 2, depth, name, ha="center", va="center", fontsize="x-small", color="white", clip_on=True)
    axes.invert_yaxis()
    axes.set_yticks([])


def _finish(figure: Any, save_path: Path | None) -> None:
    pyplot = _module("matplotlib.pyplot")
    if save_path is None:
        pyplot.show()
    else:
        figure.savefig(save_path)
    pyplot.close(figure)
