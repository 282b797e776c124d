//! Energy counters of a node: rocm_smi and the estimate.
