//! Messages and collectives between two groups of ranks.

use super::requests::{MPICH, OPEN_MPI, compiled, place_for, recorded};
use super::*;
use serde_json::Value;

/// The groups are ranks 0 and 1, and ranks 4, 3 and 2.
#[test]
fn messages_and_collectives_between_groups() {
    for mpi in [OPEN_MPI, MPICH] {
        let Some((place, compiler)) = place_for(mpi) else { return };
        let program = compiled(&place, &compiler, "mpi_groups.c", &[]);
        let (read, _) = recorded(&place, mpi.1, "5", &program);
        // Each rank sends to rank 0 of the other group, and two of each group exchange a message.
        let sent = |first: u32| json!([[1, first, 1], [2, 8, 1], [3, 12, 1], [4, 16, 1]]);
        let exchanged = |first: u32| json!([[1, first, 1], [2, 8, 1], [3, 12, 1], [4, 16, 1], [6, 4, 1]]);
        let messages = json!({
            "0 to 4": exchanged(4), "1 to 4": sent(8), "1 to 3": [[6, 4, 1]],
            "4 to 0": exchanged(4), "3 to 0": sent(8), "2 to 0": sent(12), "3 to 1": [[6, 4, 1]],
        });
        assert_eq!((&read["messages"], &read["received"]), (&messages, &messages));
        assert_eq!(read["open"], json!({}));
        assert_eq!(read["collectives"], collectives());
        let summary = json(&place.path("out/summary.json"));
        assert!(
            !summary["run"]["notes"].to_string().contains("the trace lacks"),
            "{}",
            summary["run"]["notes"]
        );
    }
}

/// The collectives of each rank, with the bytes that it sends and receives, and their number. In operations with a root, rank
/// 1 is the root, and rank 0, which is in the root's group, takes no part.
fn collectives() -> Value {
    let mut all = serde_json::Map::new();
    for rank in 0..5 {
        let is_first = rank < 2;
        let mut expect = |what: &str, ranks: &str, bytes: [u32; 2], count: u32| {
            let [sent, received] = bytes;
            all.insert(format!("{what} [{ranks}] {sent} {received} on {rank}"), json!(count));
        };
        let world = "0, 1, 2, 3, 4";
        let both = "0, 1, 4, 3, 2";
        let turned = "4, 3, 2, 0, 1";
        expect("CREATE_HANDLE", world, [0, 0], 1);
        expect("CREATE_HANDLE", if is_first { "0, 1" } else { "4, 3, 2" }, [0, 0], 1);
        expect("CREATE_HANDLE", both, [0, 0], 2);
        expect("BARRIER", both, [0, 0], 3);
        expect("BARRIER", turned, [0, 0], 1);
        expect("DESTROY_HANDLE", world, [0, 0], 1);
        let partners = if is_first { 3 } else { 2 };
        for (operation, bytes) in [("ALLREDUCE", 12), ("ALLGATHER", 8), ("ALLTOALL", 8)] {
            expect(operation, both, [partners * bytes; 2], 1);
        }
        let part = if is_first { 12 } else { 8 };
        for operation in ["REDUCE_SCATTER", "REDUCE_SCATTER_BLOCK"] {
            expect(operation, both, [24, partners * part], 1);
        }
        let rooted = [("BCAST", 32, true, 2), ("SCATTER", 16, true, 1), ("GATHER", 16, false, 1)];
        for (operation, bytes, is_sent, count) in
            rooted.into_iter().chain([("GATHERV", 4, false, 1), ("REDUCE", 16, false, 1)])
        {
            // The bytes of the root, and those of a rank of the other group.
            let (of_root, of_other) =
                if is_sent { ([3 * bytes, 0], [0, bytes]) } else { ([0, 3 * bytes], [bytes, 0]) };
            match rank {
                0 => expect(&format!("{operation} {THIS_GROUP}"), both, [0, 0], count),
                1 => expect(&format!("{operation} 1"), both, of_root, count),
                _ => expect(&format!("{operation} 1"), both, of_other, count),
            }
        }
    }
    Value::Object(all)
}

/// OTF2's `OTF2_COLLECTIVE_ROOT_THIS_GROUP`.
const THIS_GROUP: u32 = u32::MAX - 2;
