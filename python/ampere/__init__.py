"""ampere for Python: regions and units of work of a program, and the results of its runs as data frames.

    import ampere
    with ampere.region("solve"):
        ampere.work("steps", 100)

    run = ampere.load("out")
    run.call_paths.to_pandas()
"""

import sys

if sys.version_info < (3, 8):
    raise ImportError("ampere needs Python 3.8 or later; this is %d.%d" % sys.version_info[:2])

from ._ensemble import AmpereSession, Ensemble, MetricConfig, MetricType, connect
from ._interface import mark, range_end, range_start, region, region_begin, region_end, work
from ._live import live
from ._program import Error
from ._results import Frame, Run, attribute, load
from ._visualizer import Visualizer

__all__ = [
    "AmpereSession",
    "Ensemble",
    "Error",
    "Frame",
    "MetricConfig",
    "MetricType",
    "Run",
    "Visualizer",
    "attribute",
    "connect",
    "live",
    "load",
    "mark",
    "range_end",
    "range_start",
    "region",
    "region_begin",
    "region_end",
    "work",
]
