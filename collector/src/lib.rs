//! The collector: drains the rings, attributes energy, serves metrics, writes the trace and the summary.
