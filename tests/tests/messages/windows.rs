//! One-sided communication, whose synchronization is recorded as messages and barriers.

use super::requests::{MPICH, OPEN_MPI, place_for, recorded};
use super::*;

/// Rank 0 has the window, and rank 1 accesses it.
const WINDOWS: &str = r#"
#include <mpi.h>
int main(int c, char **v) {
    int rank, other, memory[2], is_complete = 0;
    MPI_Win window;
    MPI_Group everyone, others;
    MPI_Init(&c, &v); MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    other = 1 - rank;
    MPI_Comm_group(MPI_COMM_WORLD, &everyone);
    MPI_Group_incl(everyone, 1, &other, &others);
    MPI_Win_create(memory, sizeof memory, sizeof *memory, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    MPI_Win_fence(0, window);
    for (int i = 0; i < 2; i++) {
        if (rank == 0) MPI_Win_post(others, 0, window);
        else { MPI_Win_start(others, 0, window); MPI_Win_complete(window); }
        if (rank == 0 && i == 0) MPI_Win_wait(window);
        while (rank == 0 && i == 1 && !is_complete) MPI_Win_test(window, &is_complete);
    }
    MPI_Win_free(&window);
    return MPI_Finalize();
}
"#;

#[test]
fn one_sided_communication_is_recorded_as_messages_and_barriers() {
    for mpi in [OPEN_MPI, MPICH] {
        let Some((place, compiler)) = place_for(mpi) else { return };
        let program = compile(&place, &[&compiler, "-O1"], "windows", WINDOWS);
        let (read, _) = recorded(&place, mpi.1, "2", &program);
        let without_data = |tag: i32| json!([[tag as u32, 0, 2]]);
        let messages =
            json!({"0 to 1": without_data(-2_147_483_647), "1 to 0": without_data(-2_147_483_646)});
        assert_eq!((&read["messages"], &read["received"]), (&messages, &messages));
        for rank in 0..2 {
            assert_eq!(read["collectives"][format!("BARRIER [0, 1] 0 0 on {rank}")], 1, "{read}");
        }
    }
}
