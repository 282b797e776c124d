//! Collectives among neighbours, whose data are recorded as messages.

use super::requests::{MPICH, OPEN_MPI, compiled, place_for, recorded};
use super::*;
use serde_json::Value;
use std::collections::BTreeMap;

const RANKS: u32 = 4;
/// The tags of the messages of collectives, by their form.
const BLOCKING: u32 = -2_147_483_648_i32 as u32;
const NON_BLOCKING: u32 = -2_147_483_645_i32 as u32;
const PERSISTENT: u32 = -2_147_483_644_i32 as u32;

/// The number of messages between two ranks, by tag and bytes.
#[derive(Default)]
struct Messages(BTreeMap<(u32, u32), BTreeMap<(u32, u32), u32>>);

impl Messages {
    /// Adds messages of each of these sizes.
    fn add(&mut self, from: u32, to: u32, (tag, count): (u32, u32), bytes: &[u32]) {
        let of_pair = self.0.entry((from, to)).or_default();
        bytes.iter().for_each(|bytes| *of_pair.entry((tag, *bytes)).or_default() += count);
    }

    fn json(&self) -> Value {
        let pairs = self.0.iter().map(|((from, to), messages)| {
            let messages = messages.iter().map(|((tag, bytes), count)| json!([tag, bytes, count]));
            (format!("{from} to {to}"), Value::Array(messages.collect()))
        });
        Value::Object(pairs.collect())
    }
}

/// Checks that all messages are in the trace, that all requests have ended, and that nothing is reported as left out.
fn check(place: &Place, read: &Value, expected: &Messages) {
    let expected = expected.json();
    assert_eq!((&read["messages"], &read["received"]), (&expected, &expected));
    assert_eq!(read["open"], json!({}));
    let notes = json(&place.path("out/summary.json"))["run"]["notes"].to_string();
    assert!(!notes.contains("the trace lacks"), "{notes}");
}

#[test]
fn requests_of_collectives_among_neighbours() {
    let mut expected = Messages::default();
    for rank in 0..RANKS {
        let own = 4 * (rank + 1);
        for (to, all_to_all) in [((rank + 1) % RANKS, [12, 12]), ((rank + 2) % RANKS, [16, 8])] {
            expected.add(rank, to, (NON_BLOCKING, 3), &[own, all_to_all[0], all_to_all[1], 20]);
            expected.add(rank, to, (NON_BLOCKING, 1), &[24]);
            expected.add(rank, to, (PERSISTENT, 4), &[4, own, 8, all_to_all[0], all_to_all[1]]);
        }
        for to in [rank.wrapping_sub(1), rank + 1].into_iter().filter(|to| *to < RANKS) {
            expected.add(rank, to, (BLOCKING, 3), &[4]);
            expected.add(rank, to, (NON_BLOCKING, 3), &[4, 8]);
            expected.add(rank, to, (NON_BLOCKING, 2), &[24]);
        }
    }
    for mpi in [OPEN_MPI, MPICH] {
        let Some((place, compiler)) = place_for(mpi) else { return };
        let program = compiled(&place, &compiler, "mpi_neighbours.c", &[]);
        let (read, printed) = recorded(&place, mpi.1, &RANKS.to_string(), &program);
        assert!(!printed.contains("failed"), "{printed}");
        check(&place, &read, &expected);
        for rank in 0..RANKS {
            assert_eq!(read["collectives"][format!("ALLREDUCE [0, 1, 2, 3] 16 16 on {rank}")], 3, "{read}");
        }
    }
}

#[test]
fn requests_of_collectives_among_neighbours_in_fortran() {
    skip_unless!(has_python_otf2(), "no python3-otf2");
    for (mpi, extensions) in [(OPEN_MPI, "-DEXTENSIONS"), (MPICH, "-DSTANDARD")] {
        let compiler = format!("mpif90.{}", mpi.0);
        skip_unless!(on_path(&compiler) && on_path(mpi.1[0]), "no {compiler} on the PATH");
        for way in ["-DMPIF_H", "-DMODULE_MPI", "-DF08"] {
            // For Fortran 2008, Open MPI has no persistent collectives among neighbours, and MPICH refuses
            // MPI_Ineighbor_alltoallw on a line of ranks.
            let (has_persistent, has_types) = match (extensions, way) {
                (_, "-DMPIF_H" | "-DMODULE_MPI") => (true, true),
                ("-DEXTENSIONS", _) => (false, true),
                _ => (true, false),
            };
            let mut expected = Messages::default();
            for rank in 0..RANKS {
                let left = (rank.wrapping_sub(1), [12, 24]);
                for (to, sizes) in [left, (rank + 1, [16, 7])].into_iter().filter(|(to, _)| *to < RANKS) {
                    expected.add(rank, to, (NON_BLOCKING, 3), &[4, 8, 20, sizes[0]]);
                    if has_types {
                        expected.add(rank, to, (NON_BLOCKING, 3), &[sizes[1]]);
                    }
                    if has_persistent {
                        expected.add(rank, to, (PERSISTENT, 3), &[4, sizes[0]]);
                    }
                }
            }
            let place = Place::new();
            let options = ["-fallow-argument-mismatch", extensions, way];
            let program = compiled(&place, &compiler, "mpi_neighbours.F90", &options);
            check(&place, &recorded(&place, mpi.1, &RANKS.to_string(), &program).0, &expected);
        }
    }
}

/// Persistent collectives with two neighbours each. There are more of them than a process has places for open requests, and only
/// the first one is started.
const MANY: &str = r#"
#include <mpi.h>
#include <stdlib.h>
#if MPI_VERSION < 4
/* Open MPI 4 has this function of MPI 4 under another name. */
#define MPI_Neighbor_allgather_init MPIX_Neighbor_allgather_init
int MPIX_Neighbor_allgather_init(const void *, int, MPI_Datatype, void *, int, MPI_Datatype, MPI_Comm, MPI_Info, MPI_Request *);
#endif
enum { MANY = 100000 };
int main(int c, char **v) {
    int rank, size = 2, is_periodic = 1, in[2];
    MPI_Comm ring;
    MPI_Init(&c, &v); MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Cart_create(MPI_COMM_WORLD, 1, &size, &is_periodic, 0, &ring);
    MPI_Request *requests = malloc(MANY * sizeof *requests);
    for (int i = 0; i < MANY; i++)
        MPI_Neighbor_allgather_init(&rank, 1, MPI_INT, in, 1, MPI_INT, ring, MPI_INFO_NULL, &requests[i]);
    /* The first has places. Whether the last has some depends on its address, which differs between ranks. */
    for (int i = 0; i < 2; i++) { MPI_Start(requests); MPI_Wait(requests, MPI_STATUS_IGNORE); }
    for (int i = 0; i < MANY; i++) MPI_Request_free(&requests[i]);
    /* There are free places again. */
    MPI_Ineighbor_allgather(&rank, 1, MPI_INT, in, 1, MPI_INT, ring, requests);
    MPI_Wait(requests, MPI_STATUS_IGNORE);
    if (in[0] != 1 - rank || in[1] != 1 - rank) MPI_Abort(MPI_COMM_WORLD, 3);
    return MPI_Finalize();
}
"#;

#[test]
fn a_hundred_thousand_open_collectives_among_neighbours_are_recorded_or_counted() {
    for mpi in [OPEN_MPI, MPICH] {
        let Some((place, compiler)) = place_for(mpi) else { return };
        let program = compile(&place, &[&compiler, "-O1"], "many", MANY);
        let (read, _) = recorded(&place, mpi.1, "2", &program);
        let messages = json!([[NON_BLOCKING, 4, 2], [PERSISTENT, 4, 4]]);
        let messages = json!({"0 to 1": messages, "1 to 0": messages});
        assert_eq!((&read["messages"], &read["received"]), (&messages, &messages));
        assert_eq!(read["open"], json!({}));
        // Each collective takes five of the 262,144 places of a rank. A collective without places counts as one message that
        // the trace lacks.
        let notes = json(&place.path("out/summary.json"))["run"]["notes"].to_string();
        let left_out = notes.split("the trace lacks ").nth(1).and_then(|rest| rest.split(' ').next());
        let left_out: u32 =
            left_out.and_then(|count| count.parse().ok()).unwrap_or_else(|| panic!("{notes}"));
        assert!((95_142..200_000).contains(&left_out), "{notes}");
    }
}
