! Non-blocking and persistent collectives among neighbours in the three ways of Fortran, as in mpi_requests.F90.
#if defined(EXTENSIONS)
! Open MPI 4 has these functions of MPI 4 under other names.
#define INIT(operation) MPIX_Neighbor_/**/operation/**/_init
#else
#define INIT(operation) MPI_Neighbor_/**/operation/**/_init
#endif
program neighbours
#if defined(F08)
#define COMM type(MPI_Comm)
#define REQUEST type(MPI_Request)
#define DATATYPE type(MPI_Datatype)
  use mpi_f08
#else
#define COMM integer
#define REQUEST integer
#define DATATYPE integer
#endif
#if defined(MODULE_MPI)
  use mpi
#endif
  implicit none
#if !defined(F08) && !defined(MODULE_MPI)
  include 'mpif.h'
#endif
  integer :: rank, size, i, ierr
  integer :: out(16), first(16), second(16), places(2) = [0, 8]
  ! Numbers of elements: to the left and to the right, or from the left and from the right.
  integer :: two(2) = [2, 2], sent(2) = [3, 4], got(2) = [4, 3], many(2) = [6, 7], others(2) = [7, 6]
  integer(kind=MPI_ADDRESS_KIND) :: bytes(2) = [0, 32]
  DATATYPE :: types(2), other_types(2)
  REQUEST :: r(2)
  COMM :: line
  call MPI_Init(ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
  call MPI_Comm_size(MPI_COMM_WORLD, size, ierr)
  call MPI_Cart_create(MPI_COMM_WORLD, 1, [size], [.false.], .false., line, ierr)
  types = [MPI_INTEGER, MPI_CHARACTER]
  other_types = [MPI_CHARACTER, MPI_INTEGER]
  out = [(100 * rank + i, i = 1, 16)]
  do i = 1, 3
    call MPI_Ineighbor_allgather(out, 1, MPI_INTEGER, first, 1, MPI_INTEGER, line, r(1), ierr)
    call MPI_Ineighbor_allgatherv(out, 2, MPI_INTEGER, second, two, places, MPI_INTEGER, line, r(2), ierr)
    call MPI_Waitall(2, r, MPI_STATUSES_IGNORE, ierr)
    if (rank > 0 .and. second(2) /= 100 * (rank - 1) + 2) call MPI_Abort(MPI_COMM_WORLD, 3, ierr)
    call MPI_Ineighbor_alltoall(out, 5, MPI_INTEGER, first, 5, MPI_INTEGER, line, r(1), ierr)
    call MPI_Wait(r(1), MPI_STATUS_IGNORE, ierr)
    call MPI_Ineighbor_alltoallv(out, sent, places, MPI_INTEGER, first, got, places, MPI_INTEGER, line, r(1), ierr)
    call MPI_Wait(r(1), MPI_STATUS_IGNORE, ierr)
    if (rank > 0 .and. first(1) /= 100 * (rank - 1) + 9) call MPI_Abort(MPI_COMM_WORLD, 4, ierr)
#if defined(EXTENSIONS) || !defined(F08)
    ! In Fortran 2008, MPICH 4.0 accepts this function only for distributed graphs.
    call MPI_Ineighbor_alltoallw(out, many, bytes, types, first, others, bytes, other_types, line, r(1), ierr)
    call MPI_Wait(r(1), MPI_STATUS_IGNORE, ierr)
#endif
  end do
#if !defined(EXTENSIONS) || !defined(F08)
  call INIT(alltoallv)(out, sent, places, MPI_INTEGER, first, got, places, MPI_INTEGER, &
                       line, MPI_INFO_NULL, r(1), ierr)
  call INIT(allgather)(out, 1, MPI_INTEGER, second, 1, MPI_INTEGER, line, MPI_INFO_NULL, r(2), ierr)
  do i = 1, 3
    call MPI_Startall(2, r, ierr)
    call MPI_Waitall(2, r, MPI_STATUSES_IGNORE, ierr)
    if (rank > 0 .and. second(1) /= 100 * (rank - 1) + 1) call MPI_Abort(MPI_COMM_WORLD, 5, ierr)
  end do
  call MPI_Request_free(r(1), ierr)
  call MPI_Request_free(r(2), ierr)
#endif
  call MPI_Finalize(ierr)
end program
