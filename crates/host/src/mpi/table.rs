//! The MPI functions that are wrapped, one row each, sorted by name because they are found by binary search.
//!
//! These are the functions of MPI 3.1 and 4.0 that Open MPI 4.1 and MPICH 4.0 declare, and those that MPI 3.0 removed (both
//! libraries still export some). A row gives the name; the name of the variant with large counts, if it follows directly in this
//! order (otherwise that variant has a row of its own); the Fortran spelling; the number of C arguments; the number of character
//! arguments (a Fortran compiler appends a hidden length for each); and the type of the region.
//!
//! Some functions are deliberately absent, so that calls of them go straight to the MPI library: `MPI_Wtime` and `MPI_Wtick`
//! (timing a call would cost more than the call), `MPI_Pcontrol` (`pcontrol.rs`), `MPI_Aint_*` and the `f2c`/`c2f`
//! conversions (arithmetic), `MPI_T_*` (the tools' own interface), and predefined callbacks such as `MPI_DUP_FN`.

use scorep_abi::region_type;

/// Calls the macro named `$then` with every row.
macro_rules! mpi_functions {
    (
        @rows $then:ident
        $($name:ident $($large:ident)? $lower:literal $arguments:literal $characters:literal $region_type:ident;)*
    ) => {
        $then! {$(
            $name $lower "" $arguments $characters $region_type;
            $($large $lower "_c" $arguments $characters $region_type;)?
        )*}
    };
    ($then:ident) => {
        mpi_functions! {
            @rows $then
            MPI_Abort "abort" 2 0 FUNCTION;
            MPI_Accumulate MPI_Accumulate_c "accumulate" 9 0 RMA;
            MPI_Add_error_class "add_error_class" 1 0 FUNCTION;
            MPI_Add_error_code "add_error_code" 2 0 FUNCTION;
            MPI_Add_error_string "add_error_string" 2 1 FUNCTION;
            MPI_Address "address" 2 0 FUNCTION;
            MPI_Allgather MPI_Allgather_c "allgather" 7 0 COLL_ALL2ALL;
            MPI_Allgather_init MPI_Allgather_init_c "allgather_init" 9 0 COLL_ALL2ALL;
            MPI_Allgatherv MPI_Allgatherv_c "allgatherv" 8 0 COLL_ALL2ALL;
            MPI_Allgatherv_init MPI_Allgatherv_init_c "allgatherv_init" 10 0 COLL_ALL2ALL;
            MPI_Alloc_mem "alloc_mem" 3 0 FUNCTION;
            MPI_Allreduce MPI_Allreduce_c "allreduce" 6 0 COLL_ALL2ALL;
            MPI_Allreduce_init MPI_Allreduce_init_c "allreduce_init" 8 0 COLL_ALL2ALL;
            MPI_Alltoall MPI_Alltoall_c "alltoall" 7 0 COLL_ALL2ALL;
            MPI_Alltoall_init MPI_Alltoall_init_c "alltoall_init" 9 0 COLL_ALL2ALL;
            MPI_Alltoallv MPI_Alltoallv_c "alltoallv" 9 0 COLL_ALL2ALL;
            MPI_Alltoallv_init MPI_Alltoallv_init_c "alltoallv_init" 11 0 COLL_ALL2ALL;
            MPI_Alltoallw MPI_Alltoallw_c "alltoallw" 9 0 COLL_ALL2ALL;
            MPI_Alltoallw_init MPI_Alltoallw_init_c "alltoallw_init" 11 0 COLL_ALL2ALL;
            MPI_Attr_delete "attr_delete" 2 0 FUNCTION;
            MPI_Attr_get "attr_get" 4 0 FUNCTION;
            MPI_Attr_put "attr_put" 3 0 FUNCTION;
            MPI_Barrier "barrier" 1 0 BARRIER;
            MPI_Barrier_init "barrier_init" 3 0 BARRIER;
            MPI_Bcast MPI_Bcast_c "bcast" 5 0 COLL_ONE2ALL;
            MPI_Bcast_init MPI_Bcast_init_c "bcast_init" 7 0 COLL_ONE2ALL;
            MPI_Bsend MPI_Bsend_c "bsend" 6 0 POINT2POINT;
            MPI_Bsend_init MPI_Bsend_init_c "bsend_init" 7 0 POINT2POINT;
            MPI_Buffer_attach MPI_Buffer_attach_c "buffer_attach" 2 0 POINT2POINT;
            MPI_Buffer_detach MPI_Buffer_detach_c "buffer_detach" 2 0 POINT2POINT;
            MPI_Cancel "cancel" 1 0 POINT2POINT;
            MPI_Cart_coords "cart_coords" 4 0 FUNCTION;
            MPI_Cart_create "cart_create" 6 0 FUNCTION;
            MPI_Cart_get "cart_get" 5 0 FUNCTION;
            MPI_Cart_map "cart_map" 5 0 FUNCTION;
            MPI_Cart_rank "cart_rank" 3 0 FUNCTION;
            MPI_Cart_shift "cart_shift" 5 0 FUNCTION;
            MPI_Cart_sub "cart_sub" 3 0 FUNCTION;
            MPI_Cartdim_get "cartdim_get" 2 0 FUNCTION;
            MPI_Close_port "close_port" 1 1 FUNCTION;
            MPI_Comm_accept "comm_accept" 5 1 FUNCTION;
            MPI_Comm_call_errhandler "comm_call_errhandler" 2 0 FUNCTION;
            MPI_Comm_compare "comm_compare" 3 0 FUNCTION;
            MPI_Comm_connect "comm_connect" 5 1 FUNCTION;
            MPI_Comm_create "comm_create" 3 0 FUNCTION;
            MPI_Comm_create_errhandler "comm_create_errhandler" 2 0 FUNCTION;
            MPI_Comm_create_from_group "comm_create_from_group" 5 1 FUNCTION;
            MPI_Comm_create_group "comm_create_group" 4 0 FUNCTION;
            MPI_Comm_create_keyval "comm_create_keyval" 4 0 FUNCTION;
            MPI_Comm_delete_attr "comm_delete_attr" 2 0 FUNCTION;
            MPI_Comm_disconnect "comm_disconnect" 1 0 FUNCTION;
            MPI_Comm_dup "comm_dup" 2 0 FUNCTION;
            MPI_Comm_dup_with_info "comm_dup_with_info" 3 0 FUNCTION;
            MPI_Comm_free "comm_free" 1 0 FUNCTION;
            MPI_Comm_free_keyval "comm_free_keyval" 1 0 FUNCTION;
            MPI_Comm_get_attr "comm_get_attr" 4 0 FUNCTION;
            MPI_Comm_get_errhandler "comm_get_errhandler" 2 0 FUNCTION;
            MPI_Comm_get_info "comm_get_info" 2 0 FUNCTION;
            MPI_Comm_get_name "comm_get_name" 3 1 FUNCTION;
            MPI_Comm_get_parent "comm_get_parent" 1 0 FUNCTION;
            MPI_Comm_group "comm_group" 2 0 FUNCTION;
            MPI_Comm_idup "comm_idup" 3 0 FUNCTION;
            MPI_Comm_idup_with_info "comm_idup_with_info" 4 0 FUNCTION;
            MPI_Comm_join "comm_join" 2 0 FUNCTION;
            MPI_Comm_rank "comm_rank" 2 0 FUNCTION;
            MPI_Comm_remote_group "comm_remote_group" 2 0 FUNCTION;
            MPI_Comm_remote_size "comm_remote_size" 2 0 FUNCTION;
            MPI_Comm_set_attr "comm_set_attr" 3 0 FUNCTION;
            MPI_Comm_set_errhandler "comm_set_errhandler" 2 0 FUNCTION;
            MPI_Comm_set_info "comm_set_info" 2 0 FUNCTION;
            MPI_Comm_set_name "comm_set_name" 2 1 FUNCTION;
            MPI_Comm_size "comm_size" 2 0 FUNCTION;
            MPI_Comm_spawn "comm_spawn" 8 2 FUNCTION;
            MPI_Comm_spawn_multiple "comm_spawn_multiple" 9 2 FUNCTION;
            MPI_Comm_split "comm_split" 4 0 FUNCTION;
            MPI_Comm_split_type "comm_split_type" 5 0 FUNCTION;
            MPI_Comm_test_inter "comm_test_inter" 2 0 FUNCTION;
            MPI_Compare_and_swap "compare_and_swap" 7 0 RMA;
            MPI_Dims_create "dims_create" 3 0 FUNCTION;
            MPI_Dist_graph_create "dist_graph_create" 9 0 FUNCTION;
            MPI_Dist_graph_create_adjacent "dist_graph_create_adjacent" 10 0 FUNCTION;
            MPI_Dist_graph_neighbors "dist_graph_neighbors" 7 0 FUNCTION;
            MPI_Dist_graph_neighbors_count "dist_graph_neighbors_count" 4 0 FUNCTION;
            MPI_Errhandler_create "errhandler_create" 2 0 FUNCTION;
            MPI_Errhandler_free "errhandler_free" 1 0 FUNCTION;
            MPI_Errhandler_get "errhandler_get" 2 0 FUNCTION;
            MPI_Errhandler_set "errhandler_set" 2 0 FUNCTION;
            MPI_Error_class "error_class" 2 0 FUNCTION;
            MPI_Error_string "error_string" 3 1 FUNCTION;
            MPI_Exscan MPI_Exscan_c "exscan" 6 0 COLL_OTHER;
            MPI_Exscan_init MPI_Exscan_init_c "exscan_init" 8 0 COLL_OTHER;
            MPI_Fetch_and_op "fetch_and_op" 7 0 RMA;
            MPI_File_call_errhandler "file_call_errhandler" 2 0 FILE_IO_METADATA;
            MPI_File_close "file_close" 1 0 FILE_IO_METADATA;
            MPI_File_create_errhandler "file_create_errhandler" 2 0 FILE_IO_METADATA;
            MPI_File_delete "file_delete" 2 1 FILE_IO_METADATA;
            MPI_File_get_amode "file_get_amode" 2 0 FILE_IO_METADATA;
            MPI_File_get_atomicity "file_get_atomicity" 2 0 FILE_IO_METADATA;
            MPI_File_get_byte_offset "file_get_byte_offset" 3 0 FILE_IO_METADATA;
            MPI_File_get_errhandler "file_get_errhandler" 2 0 FILE_IO_METADATA;
            MPI_File_get_group "file_get_group" 2 0 FILE_IO_METADATA;
            MPI_File_get_info "file_get_info" 2 0 FILE_IO_METADATA;
            MPI_File_get_position "file_get_position" 2 0 FILE_IO_METADATA;
            MPI_File_get_position_shared "file_get_position_shared" 2 0 FILE_IO_METADATA;
            MPI_File_get_size "file_get_size" 2 0 FILE_IO_METADATA;
            MPI_File_get_type_extent MPI_File_get_type_extent_c "file_get_type_extent" 3 0 FILE_IO_METADATA;
            MPI_File_get_view "file_get_view" 5 1 FILE_IO_METADATA;
            MPI_File_iread "file_iread" 5 0 FILE_IO;
            MPI_File_iread_all MPI_File_iread_all_c "file_iread_all" 5 0 FILE_IO;
            MPI_File_iread_at "file_iread_at" 6 0 FILE_IO;
            MPI_File_iread_at_all MPI_File_iread_at_all_c "file_iread_at_all" 6 0 FILE_IO;
            MPI_File_iread_at_c "file_iread_at_c" 6 0 FILE_IO;
            MPI_File_iread_c "file_iread_c" 5 0 FILE_IO;
            MPI_File_iread_shared MPI_File_iread_shared_c "file_iread_shared" 5 0 FILE_IO;
            MPI_File_iwrite "file_iwrite" 5 0 FILE_IO;
            MPI_File_iwrite_all MPI_File_iwrite_all_c "file_iwrite_all" 5 0 FILE_IO;
            MPI_File_iwrite_at "file_iwrite_at" 6 0 FILE_IO;
            MPI_File_iwrite_at_all MPI_File_iwrite_at_all_c "file_iwrite_at_all" 6 0 FILE_IO;
            MPI_File_iwrite_at_c "file_iwrite_at_c" 6 0 FILE_IO;
            MPI_File_iwrite_c "file_iwrite_c" 5 0 FILE_IO;
            MPI_File_iwrite_shared MPI_File_iwrite_shared_c "file_iwrite_shared" 5 0 FILE_IO;
            MPI_File_open "file_open" 5 1 FILE_IO_METADATA;
            MPI_File_preallocate "file_preallocate" 2 0 FILE_IO_METADATA;
            MPI_File_read "file_read" 5 0 FILE_IO;
            MPI_File_read_all "file_read_all" 5 0 FILE_IO;
            MPI_File_read_all_begin MPI_File_read_all_begin_c "file_read_all_begin" 4 0 FILE_IO;
            MPI_File_read_all_c "file_read_all_c" 5 0 FILE_IO;
            MPI_File_read_all_end "file_read_all_end" 3 0 FILE_IO;
            MPI_File_read_at "file_read_at" 6 0 FILE_IO;
            MPI_File_read_at_all "file_read_at_all" 6 0 FILE_IO;
            MPI_File_read_at_all_begin MPI_File_read_at_all_begin_c "file_read_at_all_begin" 5 0 FILE_IO;
            MPI_File_read_at_all_c "file_read_at_all_c" 6 0 FILE_IO;
            MPI_File_read_at_all_end "file_read_at_all_end" 3 0 FILE_IO;
            MPI_File_read_at_c "file_read_at_c" 6 0 FILE_IO;
            MPI_File_read_c "file_read_c" 5 0 FILE_IO;
            MPI_File_read_ordered "file_read_ordered" 5 0 FILE_IO;
            MPI_File_read_ordered_begin MPI_File_read_ordered_begin_c "file_read_ordered_begin" 4 0 FILE_IO;
            MPI_File_read_ordered_c "file_read_ordered_c" 5 0 FILE_IO;
            MPI_File_read_ordered_end "file_read_ordered_end" 3 0 FILE_IO;
            MPI_File_read_shared MPI_File_read_shared_c "file_read_shared" 5 0 FILE_IO;
            MPI_File_seek "file_seek" 3 0 FILE_IO_METADATA;
            MPI_File_seek_shared "file_seek_shared" 3 0 FILE_IO_METADATA;
            MPI_File_set_atomicity "file_set_atomicity" 2 0 FILE_IO_METADATA;
            MPI_File_set_errhandler "file_set_errhandler" 2 0 FILE_IO_METADATA;
            MPI_File_set_info "file_set_info" 2 0 FILE_IO_METADATA;
            MPI_File_set_size "file_set_size" 2 0 FILE_IO_METADATA;
            MPI_File_set_view "file_set_view" 6 1 FILE_IO_METADATA;
            MPI_File_sync "file_sync" 1 0 FILE_IO_METADATA;
            MPI_File_write "file_write" 5 0 FILE_IO;
            MPI_File_write_all "file_write_all" 5 0 FILE_IO;
            MPI_File_write_all_begin MPI_File_write_all_begin_c "file_write_all_begin" 4 0 FILE_IO;
            MPI_File_write_all_c "file_write_all_c" 5 0 FILE_IO;
            MPI_File_write_all_end "file_write_all_end" 3 0 FILE_IO;
            MPI_File_write_at "file_write_at" 6 0 FILE_IO;
            MPI_File_write_at_all "file_write_at_all" 6 0 FILE_IO;
            MPI_File_write_at_all_begin MPI_File_write_at_all_begin_c "file_write_at_all_begin" 5 0 FILE_IO;
            MPI_File_write_at_all_c "file_write_at_all_c" 6 0 FILE_IO;
            MPI_File_write_at_all_end "file_write_at_all_end" 3 0 FILE_IO;
            MPI_File_write_at_c "file_write_at_c" 6 0 FILE_IO;
            MPI_File_write_c "file_write_c" 5 0 FILE_IO;
            MPI_File_write_ordered "file_write_ordered" 5 0 FILE_IO;
            MPI_File_write_ordered_begin MPI_File_write_ordered_begin_c "file_write_ordered_begin" 4 0 FILE_IO;
            MPI_File_write_ordered_c "file_write_ordered_c" 5 0 FILE_IO;
            MPI_File_write_ordered_end "file_write_ordered_end" 3 0 FILE_IO;
            MPI_File_write_shared MPI_File_write_shared_c "file_write_shared" 5 0 FILE_IO;
            MPI_Finalize "finalize" 0 0 FUNCTION;
            MPI_Finalized "finalized" 1 0 FUNCTION;
            MPI_Free_mem "free_mem" 1 0 FUNCTION;
            MPI_Gather MPI_Gather_c "gather" 8 0 COLL_ALL2ONE;
            MPI_Gather_init MPI_Gather_init_c "gather_init" 10 0 COLL_ALL2ONE;
            MPI_Gatherv MPI_Gatherv_c "gatherv" 9 0 COLL_ALL2ONE;
            MPI_Gatherv_init MPI_Gatherv_init_c "gatherv_init" 11 0 COLL_ALL2ONE;
            MPI_Get "get" 8 0 RMA;
            MPI_Get_accumulate MPI_Get_accumulate_c "get_accumulate" 12 0 RMA;
            MPI_Get_address "get_address" 2 0 FUNCTION;
            MPI_Get_c "get_c" 8 0 RMA;
            MPI_Get_count MPI_Get_count_c "get_count" 3 0 FUNCTION;
            MPI_Get_elements MPI_Get_elements_c "get_elements" 3 0 FUNCTION;
            MPI_Get_elements_x "get_elements_x" 3 0 FUNCTION;
            MPI_Get_library_version "get_library_version" 2 1 FUNCTION;
            MPI_Get_processor_name "get_processor_name" 2 1 FUNCTION;
            MPI_Get_version "get_version" 2 0 FUNCTION;
            MPI_Graph_create "graph_create" 6 0 FUNCTION;
            MPI_Graph_get "graph_get" 5 0 FUNCTION;
            MPI_Graph_map "graph_map" 5 0 FUNCTION;
            MPI_Graph_neighbors "graph_neighbors" 4 0 FUNCTION;
            MPI_Graph_neighbors_count "graph_neighbors_count" 3 0 FUNCTION;
            MPI_Graphdims_get "graphdims_get" 3 0 FUNCTION;
            MPI_Grequest_complete "grequest_complete" 1 0 FUNCTION;
            MPI_Grequest_start "grequest_start" 5 0 FUNCTION;
            MPI_Group_compare "group_compare" 3 0 FUNCTION;
            MPI_Group_difference "group_difference" 3 0 FUNCTION;
            MPI_Group_excl "group_excl" 4 0 FUNCTION;
            MPI_Group_free "group_free" 1 0 FUNCTION;
            MPI_Group_from_session_pset "group_from_session_pset" 3 1 FUNCTION;
            MPI_Group_incl "group_incl" 4 0 FUNCTION;
            MPI_Group_intersection "group_intersection" 3 0 FUNCTION;
            MPI_Group_range_excl "group_range_excl" 4 0 FUNCTION;
            MPI_Group_range_incl "group_range_incl" 4 0 FUNCTION;
            MPI_Group_rank "group_rank" 2 0 FUNCTION;
            MPI_Group_size "group_size" 2 0 FUNCTION;
            MPI_Group_translate_ranks "group_translate_ranks" 5 0 FUNCTION;
            MPI_Group_union "group_union" 3 0 FUNCTION;
            MPI_Iallgather MPI_Iallgather_c "iallgather" 8 0 COLL_ALL2ALL;
            MPI_Iallgatherv MPI_Iallgatherv_c "iallgatherv" 9 0 COLL_ALL2ALL;
            MPI_Iallreduce MPI_Iallreduce_c "iallreduce" 7 0 COLL_ALL2ALL;
            MPI_Ialltoall MPI_Ialltoall_c "ialltoall" 8 0 COLL_ALL2ALL;
            MPI_Ialltoallv MPI_Ialltoallv_c "ialltoallv" 10 0 COLL_ALL2ALL;
            MPI_Ialltoallw MPI_Ialltoallw_c "ialltoallw" 10 0 COLL_ALL2ALL;
            MPI_Ibarrier "ibarrier" 2 0 BARRIER;
            MPI_Ibcast MPI_Ibcast_c "ibcast" 6 0 COLL_ONE2ALL;
            MPI_Ibsend MPI_Ibsend_c "ibsend" 7 0 POINT2POINT;
            MPI_Iexscan MPI_Iexscan_c "iexscan" 7 0 COLL_OTHER;
            MPI_Igather MPI_Igather_c "igather" 9 0 COLL_ALL2ONE;
            MPI_Igatherv MPI_Igatherv_c "igatherv" 10 0 COLL_ALL2ONE;
            MPI_Improbe "improbe" 6 0 POINT2POINT;
            MPI_Imrecv MPI_Imrecv_c "imrecv" 5 0 POINT2POINT;
            MPI_Ineighbor_allgather MPI_Ineighbor_allgather_c "ineighbor_allgather" 8 0 COLL_ALL2ALL;
            MPI_Ineighbor_allgatherv MPI_Ineighbor_allgatherv_c "ineighbor_allgatherv" 9 0 COLL_ALL2ALL;
            MPI_Ineighbor_alltoall MPI_Ineighbor_alltoall_c "ineighbor_alltoall" 8 0 COLL_ALL2ALL;
            MPI_Ineighbor_alltoallv MPI_Ineighbor_alltoallv_c "ineighbor_alltoallv" 10 0 COLL_ALL2ALL;
            MPI_Ineighbor_alltoallw MPI_Ineighbor_alltoallw_c "ineighbor_alltoallw" 10 0 COLL_ALL2ALL;
            MPI_Info_create "info_create" 1 0 FUNCTION;
            MPI_Info_create_env "info_create_env" 3 1 FUNCTION;
            MPI_Info_delete "info_delete" 2 1 FUNCTION;
            MPI_Info_dup "info_dup" 2 0 FUNCTION;
            MPI_Info_free "info_free" 1 0 FUNCTION;
            MPI_Info_get "info_get" 5 2 FUNCTION;
            MPI_Info_get_nkeys "info_get_nkeys" 2 0 FUNCTION;
            MPI_Info_get_nthkey "info_get_nthkey" 3 1 FUNCTION;
            MPI_Info_get_string "info_get_string" 5 2 FUNCTION;
            MPI_Info_get_valuelen "info_get_valuelen" 4 1 FUNCTION;
            MPI_Info_set "info_set" 3 2 FUNCTION;
            MPI_Init "init" 2 1 FUNCTION;
            MPI_Init_thread "init_thread" 4 1 FUNCTION;
            MPI_Initialized "initialized" 1 0 FUNCTION;
            MPI_Intercomm_create "intercomm_create" 6 0 FUNCTION;
            MPI_Intercomm_create_from_groups "intercomm_create_from_groups" 8 1 FUNCTION;
            MPI_Intercomm_merge "intercomm_merge" 3 0 FUNCTION;
            MPI_Iprobe "iprobe" 5 0 POINT2POINT;
            MPI_Irecv MPI_Irecv_c "irecv" 7 0 POINT2POINT;
            MPI_Ireduce MPI_Ireduce_c "ireduce" 8 0 COLL_ALL2ONE;
            MPI_Ireduce_scatter "ireduce_scatter" 7 0 COLL_ALL2ALL;
            MPI_Ireduce_scatter_block MPI_Ireduce_scatter_block_c "ireduce_scatter_block" 7 0 COLL_ALL2ALL;
            MPI_Ireduce_scatter_c "ireduce_scatter_c" 7 0 COLL_ALL2ALL;
            MPI_Irsend MPI_Irsend_c "irsend" 7 0 POINT2POINT;
            MPI_Is_thread_main "is_thread_main" 1 0 FUNCTION;
            MPI_Iscan MPI_Iscan_c "iscan" 7 0 COLL_OTHER;
            MPI_Iscatter MPI_Iscatter_c "iscatter" 9 0 COLL_ONE2ALL;
            MPI_Iscatterv MPI_Iscatterv_c "iscatterv" 10 0 COLL_ONE2ALL;
            MPI_Isend MPI_Isend_c "isend" 7 0 POINT2POINT;
            MPI_Isendrecv MPI_Isendrecv_c "isendrecv" 12 0 POINT2POINT;
            MPI_Isendrecv_replace MPI_Isendrecv_replace_c "isendrecv_replace" 9 0 POINT2POINT;
            MPI_Issend MPI_Issend_c "issend" 7 0 POINT2POINT;
            MPI_Keyval_create "keyval_create" 4 0 FUNCTION;
            MPI_Keyval_free "keyval_free" 1 0 FUNCTION;
            MPI_Lookup_name "lookup_name" 3 2 FUNCTION;
            MPI_Mprobe "mprobe" 5 0 POINT2POINT;
            MPI_Mrecv MPI_Mrecv_c "mrecv" 5 0 POINT2POINT;
            MPI_Neighbor_allgather MPI_Neighbor_allgather_c "neighbor_allgather" 7 0 COLL_ALL2ALL;
            MPI_Neighbor_allgather_init MPI_Neighbor_allgather_init_c "neighbor_allgather_init" 9 0 COLL_ALL2ALL;
            MPI_Neighbor_allgatherv MPI_Neighbor_allgatherv_c "neighbor_allgatherv" 8 0 COLL_ALL2ALL;
            MPI_Neighbor_allgatherv_init MPI_Neighbor_allgatherv_init_c "neighbor_allgatherv_init" 10 0 COLL_ALL2ALL;
            MPI_Neighbor_alltoall MPI_Neighbor_alltoall_c "neighbor_alltoall" 7 0 COLL_ALL2ALL;
            MPI_Neighbor_alltoall_init MPI_Neighbor_alltoall_init_c "neighbor_alltoall_init" 9 0 COLL_ALL2ALL;
            MPI_Neighbor_alltoallv MPI_Neighbor_alltoallv_c "neighbor_alltoallv" 9 0 COLL_ALL2ALL;
            MPI_Neighbor_alltoallv_init MPI_Neighbor_alltoallv_init_c "neighbor_alltoallv_init" 11 0 COLL_ALL2ALL;
            MPI_Neighbor_alltoallw MPI_Neighbor_alltoallw_c "neighbor_alltoallw" 9 0 COLL_ALL2ALL;
            MPI_Neighbor_alltoallw_init MPI_Neighbor_alltoallw_init_c "neighbor_alltoallw_init" 11 0 COLL_ALL2ALL;
            MPI_Op_commutative "op_commutative" 2 0 FUNCTION;
            MPI_Op_create MPI_Op_create_c "op_create" 3 0 FUNCTION;
            MPI_Op_free "op_free" 1 0 FUNCTION;
            MPI_Open_port "open_port" 2 1 FUNCTION;
            MPI_Pack MPI_Pack_c "pack" 7 0 FUNCTION;
            MPI_Pack_external MPI_Pack_external_c "pack_external" 7 1 FUNCTION;
            MPI_Pack_external_size MPI_Pack_external_size_c "pack_external_size" 4 1 FUNCTION;
            MPI_Pack_size MPI_Pack_size_c "pack_size" 4 0 FUNCTION;
            MPI_Parrived "parrived" 3 0 POINT2POINT;
            MPI_Pready "pready" 2 0 POINT2POINT;
            MPI_Pready_list "pready_list" 3 0 POINT2POINT;
            MPI_Pready_range "pready_range" 3 0 POINT2POINT;
            MPI_Precv_init "precv_init" 9 0 POINT2POINT;
            MPI_Probe "probe" 4 0 POINT2POINT;
            MPI_Psend_init "psend_init" 9 0 POINT2POINT;
            MPI_Publish_name "publish_name" 3 2 FUNCTION;
            MPI_Put MPI_Put_c "put" 8 0 RMA;
            MPI_Query_thread "query_thread" 1 0 FUNCTION;
            MPI_Raccumulate MPI_Raccumulate_c "raccumulate" 10 0 RMA;
            MPI_Recv MPI_Recv_c "recv" 7 0 POINT2POINT;
            MPI_Recv_init MPI_Recv_init_c "recv_init" 7 0 POINT2POINT;
            MPI_Reduce MPI_Reduce_c "reduce" 7 0 COLL_ALL2ONE;
            MPI_Reduce_init MPI_Reduce_init_c "reduce_init" 9 0 COLL_ALL2ONE;
            MPI_Reduce_local MPI_Reduce_local_c "reduce_local" 5 0 FUNCTION;
            MPI_Reduce_scatter "reduce_scatter" 6 0 COLL_ALL2ALL;
            MPI_Reduce_scatter_block MPI_Reduce_scatter_block_c "reduce_scatter_block" 6 0 COLL_ALL2ALL;
            MPI_Reduce_scatter_block_init MPI_Reduce_scatter_block_init_c "reduce_scatter_block_init" 8 0 COLL_ALL2ALL;
            MPI_Reduce_scatter_c "reduce_scatter_c" 6 0 COLL_ALL2ALL;
            MPI_Reduce_scatter_init MPI_Reduce_scatter_init_c "reduce_scatter_init" 8 0 COLL_ALL2ALL;
            MPI_Register_datarep MPI_Register_datarep_c "register_datarep" 5 1 FUNCTION;
            MPI_Request_free "request_free" 1 0 POINT2POINT;
            MPI_Request_get_status "request_get_status" 3 0 POINT2POINT;
            MPI_Rget "rget" 9 0 RMA;
            MPI_Rget_accumulate MPI_Rget_accumulate_c "rget_accumulate" 13 0 RMA;
            MPI_Rget_c "rget_c" 9 0 RMA;
            MPI_Rput MPI_Rput_c "rput" 9 0 RMA;
            MPI_Rsend MPI_Rsend_c "rsend" 6 0 POINT2POINT;
            MPI_Rsend_init MPI_Rsend_init_c "rsend_init" 7 0 POINT2POINT;
            MPI_Scan MPI_Scan_c "scan" 6 0 COLL_OTHER;
            MPI_Scan_init MPI_Scan_init_c "scan_init" 8 0 COLL_OTHER;
            MPI_Scatter MPI_Scatter_c "scatter" 8 0 COLL_ONE2ALL;
            MPI_Scatter_init MPI_Scatter_init_c "scatter_init" 10 0 COLL_ONE2ALL;
            MPI_Scatterv MPI_Scatterv_c "scatterv" 9 0 COLL_ONE2ALL;
            MPI_Scatterv_init MPI_Scatterv_init_c "scatterv_init" 11 0 COLL_ONE2ALL;
            MPI_Send MPI_Send_c "send" 6 0 POINT2POINT;
            MPI_Send_init MPI_Send_init_c "send_init" 7 0 POINT2POINT;
            MPI_Sendrecv MPI_Sendrecv_c "sendrecv" 12 0 POINT2POINT;
            MPI_Sendrecv_replace MPI_Sendrecv_replace_c "sendrecv_replace" 9 0 POINT2POINT;
            MPI_Session_call_errhandler "session_call_errhandler" 2 0 FUNCTION;
            MPI_Session_create_errhandler "session_create_errhandler" 2 0 FUNCTION;
            MPI_Session_finalize "session_finalize" 1 0 FUNCTION;
            MPI_Session_get_errhandler "session_get_errhandler" 2 0 FUNCTION;
            MPI_Session_get_info "session_get_info" 2 0 FUNCTION;
            MPI_Session_get_nth_pset "session_get_nth_pset" 5 1 FUNCTION;
            MPI_Session_get_num_psets "session_get_num_psets" 3 0 FUNCTION;
            MPI_Session_get_pset_info "session_get_pset_info" 3 1 FUNCTION;
            MPI_Session_init "session_init" 3 0 FUNCTION;
            MPI_Session_set_errhandler "session_set_errhandler" 2 0 FUNCTION;
            MPI_Ssend MPI_Ssend_c "ssend" 6 0 POINT2POINT;
            MPI_Ssend_init MPI_Ssend_init_c "ssend_init" 7 0 POINT2POINT;
            MPI_Start "start" 1 0 POINT2POINT;
            MPI_Startall "startall" 2 0 POINT2POINT;
            MPI_Status_set_cancelled "status_set_cancelled" 2 0 FUNCTION;
            MPI_Status_set_elements "status_set_elements" 3 0 FUNCTION;
            MPI_Status_set_elements_x "status_set_elements_x" 3 0 FUNCTION;
            MPI_Test "test" 3 0 POINT2POINT;
            MPI_Test_cancelled "test_cancelled" 2 0 POINT2POINT;
            MPI_Testall "testall" 4 0 POINT2POINT;
            MPI_Testany "testany" 5 0 POINT2POINT;
            MPI_Testsome "testsome" 5 0 POINT2POINT;
            MPI_Topo_test "topo_test" 2 0 FUNCTION;
            MPI_Type_commit "type_commit" 1 0 FUNCTION;
            MPI_Type_contiguous MPI_Type_contiguous_c "type_contiguous" 3 0 FUNCTION;
            MPI_Type_create_darray MPI_Type_create_darray_c "type_create_darray" 10 0 FUNCTION;
            MPI_Type_create_f90_complex "type_create_f90_complex" 3 0 FUNCTION;
            MPI_Type_create_f90_integer "type_create_f90_integer" 2 0 FUNCTION;
            MPI_Type_create_f90_real "type_create_f90_real" 3 0 FUNCTION;
            MPI_Type_create_hindexed "type_create_hindexed" 5 0 FUNCTION;
            MPI_Type_create_hindexed_block MPI_Type_create_hindexed_block_c "type_create_hindexed_block" 5 0 FUNCTION;
            MPI_Type_create_hindexed_c "type_create_hindexed_c" 5 0 FUNCTION;
            MPI_Type_create_hvector MPI_Type_create_hvector_c "type_create_hvector" 5 0 FUNCTION;
            MPI_Type_create_indexed_block MPI_Type_create_indexed_block_c "type_create_indexed_block" 5 0 FUNCTION;
            MPI_Type_create_keyval "type_create_keyval" 4 0 FUNCTION;
            MPI_Type_create_resized MPI_Type_create_resized_c "type_create_resized" 4 0 FUNCTION;
            MPI_Type_create_struct MPI_Type_create_struct_c "type_create_struct" 5 0 FUNCTION;
            MPI_Type_create_subarray MPI_Type_create_subarray_c "type_create_subarray" 7 0 FUNCTION;
            MPI_Type_delete_attr "type_delete_attr" 2 0 FUNCTION;
            MPI_Type_dup "type_dup" 2 0 FUNCTION;
            MPI_Type_extent "type_extent" 2 0 FUNCTION;
            MPI_Type_free "type_free" 1 0 FUNCTION;
            MPI_Type_free_keyval "type_free_keyval" 1 0 FUNCTION;
            MPI_Type_get_attr "type_get_attr" 4 0 FUNCTION;
            MPI_Type_get_contents "type_get_contents" 7 0 FUNCTION;
            MPI_Type_get_contents_c "type_get_contents_c" 9 0 FUNCTION;
            MPI_Type_get_envelope "type_get_envelope" 5 0 FUNCTION;
            MPI_Type_get_envelope_c "type_get_envelope_c" 6 0 FUNCTION;
            MPI_Type_get_extent MPI_Type_get_extent_c "type_get_extent" 3 0 FUNCTION;
            MPI_Type_get_extent_x "type_get_extent_x" 3 0 FUNCTION;
            MPI_Type_get_name "type_get_name" 3 1 FUNCTION;
            MPI_Type_get_true_extent MPI_Type_get_true_extent_c "type_get_true_extent" 3 0 FUNCTION;
            MPI_Type_get_true_extent_x "type_get_true_extent_x" 3 0 FUNCTION;
            MPI_Type_hindexed "type_hindexed" 5 0 FUNCTION;
            MPI_Type_hvector "type_hvector" 5 0 FUNCTION;
            MPI_Type_indexed MPI_Type_indexed_c "type_indexed" 5 0 FUNCTION;
            MPI_Type_lb "type_lb" 2 0 FUNCTION;
            MPI_Type_match_size "type_match_size" 3 0 FUNCTION;
            MPI_Type_set_attr "type_set_attr" 3 0 FUNCTION;
            MPI_Type_set_name "type_set_name" 2 1 FUNCTION;
            MPI_Type_size MPI_Type_size_c "type_size" 2 0 FUNCTION;
            MPI_Type_size_x "type_size_x" 2 0 FUNCTION;
            MPI_Type_struct "type_struct" 5 0 FUNCTION;
            MPI_Type_ub "type_ub" 2 0 FUNCTION;
            MPI_Type_vector MPI_Type_vector_c "type_vector" 5 0 FUNCTION;
            MPI_Unpack MPI_Unpack_c "unpack" 7 0 FUNCTION;
            MPI_Unpack_external MPI_Unpack_external_c "unpack_external" 7 0 FUNCTION;
            MPI_Unpublish_name "unpublish_name" 3 2 FUNCTION;
            MPI_Wait "wait" 2 0 POINT2POINT;
            MPI_Waitall "waitall" 3 0 POINT2POINT;
            MPI_Waitany "waitany" 4 0 POINT2POINT;
            MPI_Waitsome "waitsome" 5 0 POINT2POINT;
            MPI_Win_allocate MPI_Win_allocate_c "win_allocate" 6 0 RMA;
            MPI_Win_allocate_shared MPI_Win_allocate_shared_c "win_allocate_shared" 6 0 RMA;
            MPI_Win_attach "win_attach" 3 0 RMA;
            MPI_Win_call_errhandler "win_call_errhandler" 2 0 FUNCTION;
            MPI_Win_complete "win_complete" 1 0 RMA;
            MPI_Win_create MPI_Win_create_c "win_create" 6 0 RMA;
            MPI_Win_create_dynamic "win_create_dynamic" 3 0 RMA;
            MPI_Win_create_errhandler "win_create_errhandler" 2 0 FUNCTION;
            MPI_Win_create_keyval "win_create_keyval" 4 0 FUNCTION;
            MPI_Win_delete_attr "win_delete_attr" 2 0 FUNCTION;
            MPI_Win_detach "win_detach" 2 0 RMA;
            MPI_Win_fence "win_fence" 2 0 RMA;
            MPI_Win_flush "win_flush" 2 0 RMA;
            MPI_Win_flush_all "win_flush_all" 1 0 RMA;
            MPI_Win_flush_local "win_flush_local" 2 0 RMA;
            MPI_Win_flush_local_all "win_flush_local_all" 1 0 RMA;
            MPI_Win_free "win_free" 1 0 RMA;
            MPI_Win_free_keyval "win_free_keyval" 1 0 FUNCTION;
            MPI_Win_get_attr "win_get_attr" 4 0 FUNCTION;
            MPI_Win_get_errhandler "win_get_errhandler" 2 0 FUNCTION;
            MPI_Win_get_group "win_get_group" 2 0 FUNCTION;
            MPI_Win_get_info "win_get_info" 2 0 FUNCTION;
            MPI_Win_get_name "win_get_name" 3 1 FUNCTION;
            MPI_Win_lock "win_lock" 4 0 RMA;
            MPI_Win_lock_all "win_lock_all" 2 0 RMA;
            MPI_Win_post "win_post" 3 0 RMA;
            MPI_Win_set_attr "win_set_attr" 3 0 FUNCTION;
            MPI_Win_set_errhandler "win_set_errhandler" 2 0 FUNCTION;
            MPI_Win_set_info "win_set_info" 2 0 FUNCTION;
            MPI_Win_set_name "win_set_name" 2 1 FUNCTION;
            MPI_Win_shared_query MPI_Win_shared_query_c "win_shared_query" 5 0 FUNCTION;
            MPI_Win_start "win_start" 3 0 RMA;
            MPI_Win_sync "win_sync" 1 0 RMA;
            MPI_Win_test "win_test" 2 0 RMA;
            MPI_Win_unlock "win_unlock" 2 0 RMA;
            MPI_Win_unlock_all "win_unlock_all" 1 0 RMA;
            MPI_Win_wait "win_wait" 1 0 RMA;
        }
    };
}
pub(crate) use mpi_functions;

macro_rules! make_functions {
    ($($name:ident $lower:literal $suffix:literal $arguments:literal $characters:literal $region_type:ident;)*) => {
        /// Every wrapped function; the number is its index into [`FUNCTIONS`].
        #[allow(non_camel_case_types)]
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u16)]
        pub enum Function { $($name),* }

        /// Name and region type of every wrapped function.
        pub static FUNCTIONS: &[Row] = &[
            $(Row {
                name: stringify!($name),
                lower: concat!("mpi_", $lower, $suffix),
                region_type: region_type::$region_type,
            }),*
        ];
    };
}

/// The names and the region type of a wrapped function.
pub struct Row {
    /// The name in C, which is the region's name in every language: `MPI_Send`.
    pub name: &'static str,
    /// The stem of the Fortran symbols: `mpi_send`.
    pub lower: &'static str,
    /// A value of Score-P's enum `SCOREP_RegionType`.
    pub region_type: i32,
}

mpi_functions!(make_functions);

#[cfg(test)]
mod tests {
    use super::FUNCTIONS;
    use ampere_model::regions::is_mpi;

    #[test]
    fn all_functions_are_known_as_mpis_in_lower_case() {
        FUNCTIONS.iter().for_each(|row| assert!(is_mpi(row.lower), "{}", row.lower));
    }
}
