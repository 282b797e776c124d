//! The names of MPI's functions in Fortran, in which a symbol or a region has lower case. Programs have functions of their own
//! whose names begin with `mpi_`.

/// The names without `mpi_`, in alphabetical order. `crates/host/src/mpi/table.rs` has the same functions.
const NAMES: &str = "abort accumulate add_error_class add_error_code add_error_string address allgather allgather_init allgatherv \
     allgatherv_init alloc_mem allreduce allreduce_init alltoall alltoall_init alltoallv alltoallv_init alltoallw \
     alltoallw_init attr_delete attr_get attr_put barrier barrier_init bcast bcast_init bsend bsend_init \
     buffer_attach buffer_detach cancel cart_coords cart_create cart_get cart_map cart_rank cart_shift cart_sub \
     cartdim_get close_port comm_accept comm_call_errhandler comm_compare comm_connect comm_create \
     comm_create_errhandler comm_create_from_group comm_create_group comm_create_keyval comm_delete_attr \
     comm_disconnect comm_dup comm_dup_with_info comm_free comm_free_keyval comm_get_attr comm_get_errhandler \
     comm_get_info comm_get_name comm_get_parent comm_group comm_idup comm_idup_with_info comm_join comm_rank \
     comm_remote_group comm_remote_size comm_set_attr comm_set_errhandler comm_set_info comm_set_name comm_size \
     comm_spawn comm_spawn_multiple comm_split comm_split_type comm_test_inter compare_and_swap dims_create \
     dist_graph_create dist_graph_create_adjacent dist_graph_neighbors dist_graph_neighbors_count errhandler_create \
     errhandler_free errhandler_get errhandler_set error_class error_string exscan exscan_init fetch_and_op \
     file_call_errhandler file_close file_create_errhandler file_delete file_get_amode file_get_atomicity \
     file_get_byte_offset file_get_errhandler file_get_group file_get_info file_get_position file_get_position_shared \
     file_get_size file_get_type_extent file_get_view file_iread file_iread_all file_iread_at file_iread_at_all \
     file_iread_at_c file_iread_c file_iread_shared file_iwrite file_iwrite_all file_iwrite_at file_iwrite_at_all \
     file_iwrite_at_c file_iwrite_c file_iwrite_shared file_open file_preallocate file_read file_read_all \
     file_read_all_begin file_read_all_c file_read_all_end file_read_at file_read_at_all file_read_at_all_begin \
     file_read_at_all_c file_read_at_all_end file_read_at_c file_read_c file_read_ordered file_read_ordered_begin \
     file_read_ordered_c file_read_ordered_end file_read_shared file_seek file_seek_shared file_set_atomicity \
     file_set_errhandler file_set_info file_set_size file_set_view file_sync file_write file_write_all \
     file_write_all_begin file_write_all_c file_write_all_end file_write_at file_write_at_all file_write_at_all_begin \
     file_write_at_all_c file_write_at_all_end file_write_at_c file_write_c file_write_ordered \
     file_write_ordered_begin file_write_ordered_c file_write_ordered_end file_write_shared finalize finalized \
     free_mem gather gather_init gatherv gatherv_init get get_accumulate get_address get_c get_count get_elements \
     get_elements_x get_library_version get_processor_name get_version graph_create graph_get graph_map \
     graph_neighbors graph_neighbors_count graphdims_get grequest_complete grequest_start group_compare \
     group_difference group_excl group_free group_from_session_pset group_incl group_intersection group_range_excl \
     group_range_incl group_rank group_size group_translate_ranks group_union iallgather iallgatherv iallreduce \
     ialltoall ialltoallv ialltoallw ibarrier ibcast ibsend iexscan igather igatherv improbe imrecv \
     ineighbor_allgather ineighbor_allgatherv ineighbor_alltoall ineighbor_alltoallv ineighbor_alltoallw info_create \
     info_create_env info_delete info_dup info_free info_get info_get_nkeys info_get_nthkey info_get_string \
     info_get_valuelen info_set init init_thread initialized intercomm_create intercomm_create_from_groups \
     intercomm_merge iprobe irecv ireduce ireduce_scatter ireduce_scatter_block ireduce_scatter_c irsend \
     is_thread_main iscan iscatter iscatterv isend isendrecv isendrecv_replace issend keyval_create keyval_free \
     lookup_name mprobe mrecv neighbor_allgather neighbor_allgather_init neighbor_allgatherv neighbor_allgatherv_init \
     neighbor_alltoall neighbor_alltoall_init neighbor_alltoallv neighbor_alltoallv_init neighbor_alltoallw \
     neighbor_alltoallw_init op_commutative op_create op_free open_port pack pack_external pack_external_size \
     pack_size parrived pcontrol pready pready_list pready_range precv_init probe psend_init publish_name put \
     query_thread raccumulate recv recv_init reduce reduce_init reduce_local reduce_scatter reduce_scatter_block \
     reduce_scatter_block_init reduce_scatter_c reduce_scatter_init register_datarep request_free request_get_status \
     rget rget_accumulate rget_c rput rsend rsend_init scan scan_init scatter scatter_init scatterv scatterv_init \
     send send_init sendrecv sendrecv_replace session_call_errhandler session_create_errhandler session_finalize \
     session_get_errhandler session_get_info session_get_nth_pset session_get_num_psets session_get_pset_info \
     session_init session_set_errhandler ssend ssend_init start startall status_set_cancelled status_set_elements \
     status_set_elements_x test test_cancelled testall testany testsome topo_test type_commit type_contiguous \
     type_create_darray type_create_f90_complex type_create_f90_integer type_create_f90_real type_create_hindexed \
     type_create_hindexed_block type_create_hindexed_c type_create_hvector type_create_indexed_block \
     type_create_keyval type_create_resized type_create_struct type_create_subarray type_delete_attr type_dup \
     type_extent type_free type_free_keyval type_get_attr type_get_contents type_get_contents_c type_get_envelope \
     type_get_envelope_c type_get_extent type_get_extent_x type_get_name type_get_true_extent type_get_true_extent_x \
     type_hindexed type_hvector type_indexed type_lb type_match_size type_set_attr type_set_name type_size \
     type_size_x type_struct type_ub type_vector unpack unpack_external unpublish_name wait waitall waitany waitsome \
     win_allocate win_allocate_shared win_attach win_call_errhandler win_complete win_create win_create_dynamic \
     win_create_errhandler win_create_keyval win_delete_attr win_detach win_fence win_flush win_flush_all \
     win_flush_local win_flush_local_all win_free win_free_keyval win_get_attr win_get_errhandler win_get_group \
     win_get_info win_get_name win_lock win_lock_all win_post win_set_attr win_set_errhandler win_set_info \
     win_set_name win_shared_query win_start win_sync win_test win_unlock win_unlock_all win_wait wtick wtime";

/// What follows the name in symbols: the underscores of compilers, the interface, and the variant with large counts.
const SUFFIXES: [&str; 4] = ["_f08ts", "_f08", "_f", "_c"];

/// Whether this is the name of a function of MPI in lower case, without `mpi_`, with any of the suffixes.
pub(crate) fn has(name: &str) -> bool {
    let name = SUFFIXES.iter().fold(name.trim_end_matches('_'), |name, suffix| name.trim_end_matches(suffix));
    NAMES.split(' ').any(|known| known == name)
}

#[cfg(test)]
mod tests {
    use crate::regions::is_mpi;

    #[test]
    fn a_programs_own_function_is_not_mpis() {
        for name in [
            "MPI_Send",
            "PMPI_Isend",
            "mpi_send",
            "mpi_send_",
            "pmpi_send__",
            "mpi_allreduce_f08_",
            "mpi_wtime",
        ] {
            assert!(is_mpi(name), "{name}");
        }
        for name in ["mpi_halo_exchange", "mpi_send_boundary_", "mpi_", "mpi__", "compi_send", "Mpi_Send"] {
            assert!(!is_mpi(name), "{name}");
        }
    }
}
