"""ampere's own interface, for Python: marks regions and ranges, and counts units of work.

    import ampere
    with ampere.region("solve"):
        ampere.work("steps", 100)

Without `ampere run`, the calls do nothing. Needs nothing but Python 3.
"""

import ctypes
import os

__all__ = ["mark", "range_end", "range_start", "region", "region_begin", "region_end", "work"]


class _Functions(ctypes.Structure):
    """struct ampere_functions of ampere.h."""

    _NAMED = ctypes.CFUNCTYPE(None, ctypes.c_char_p)
    _fields_ = [
        ("region_begin", _NAMED),
        ("region_end", _NAMED),
        ("mark", _NAMED),
        ("work", ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_double)),
        ("range_start", ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_char_p)),
        ("range_end", ctypes.CFUNCTYPE(None, ctypes.c_uint64)),
    ]


def _find():
    try:
        library = ctypes.CDLL(os.environ["AMPERE_INTERFACE"])
        get = library.ampere_interface
    except (AttributeError, KeyError, OSError):
        return None, False
    get.argtypes, get.restype = [ctypes.c_uint], ctypes.POINTER(_Functions)
    found = get(1)
    # Older libraries have only the first four functions.
    has_ranges = hasattr(library, "ampere_interface_functions") and library.ampere_interface_functions() >= 6
    return (found.contents, has_ranges) if found else (None, False)


def _bytes(name):
    # A name ends at a NUL character, as in C.
    return str(name).encode("utf-8", "replace")


_found, _has_ranges = _find()

if _found:
    _begin, _end, _mark, _work = _found.region_begin, _found.region_end, _found.mark, _found.work

    def region_begin(name):
        """Begins a region of this thread."""
        _begin(_bytes(name))

    def region_end(name):
        """Ends the innermost open region of this name, and all regions that began inside."""
        _end(_bytes(name))

    def mark(name):
        """Marks a moment: a region that ends at once."""
        _mark(_bytes(name))

    def work(name, units):
        """Counts units of work that were done, such as time steps. `units` must be finite and more than 0."""
        _work(_bytes(name), units)

else:

    def region_begin(name):
        """Does nothing: ampere is not there."""

    def region_end(name):
        """Does nothing: ampere is not there."""

    def mark(name):
        """Does nothing: ampere is not there."""

    def work(name, units):
        """Does nothing: ampere is not there."""

if _found and _has_ranges:
    _start, _end_range = _found.range_start, _found.range_end

    def range_start(name):
        """Starts a range, which may overlap others, and returns its number for `range_end`."""
        return _start(_bytes(name))

    def range_end(number):
        """Ends a range, on any thread."""
        _end_range(number)

else:

    def range_start(name):
        """Does nothing: ampere is not there."""
        return 0

    def range_end(number):
        """Does nothing: ampere is not there."""


class region:
    """A region as a context, or around each call of a function: `with region("x"):` or `@region("x")`."""

    def __init__(self, name):
        self.name = name

    def __enter__(self):
        region_begin(self.name)
        return self

    def __exit__(self, *exception):
        region_end(self.name)

    def __call__(self, function):
        import functools

        @functools.wraps(function)
        def inside(*arguments, **keywords):
            with region(self.name):
                return function(*arguments, **keywords)

        return inside
