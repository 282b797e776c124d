//! Faults: whole processes under a real mpirun that are ended, stopped, or deprived of disk, memory, files and descriptors.
//! Whatever happens, the program does what it does without ampere, and what was published before the fault is in the results.

mod containers;
mod ends;
mod files;
mod guests;
mod jumps;
mod limits;
mod outside;
mod processes;
mod warnings;
