"""The part of Arkouda that the example of the Python ampere calls, implemented with pandas: `import ampere.arkouda as ak`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Iterable

from ._results import _module

if TYPE_CHECKING:
    import pandas

__all__ = ["DataFrame"]


class DataFrame:
    """Puts the tables of several metrics into one. The tables themselves are data frames of pandas."""

    @staticmethod
    def concat(frames: Iterable[pandas.DataFrame]) -> pandas.DataFrame:
        """Returns the rows of all tables."""
        return _module("pandas").concat(list(frames), ignore_index=True)
