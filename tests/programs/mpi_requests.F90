! Messages, requests and collectives through Fortran's three interfaces: F08 selects mpi_f08, MODULE_MPI selects mpi, neither mpif.h.
program requests
#if defined(F08)
#define COMM type(MPI_Comm)
#define REQUEST type(MPI_Request)
#define STATUS(name) type(MPI_Status) :: name
#define STATUSES(name) type(MPI_Status) :: name(4)
#define OF(status, field) status%field
  use mpi_f08
#else
#define COMM integer
#define REQUEST integer
#define STATUS(name) integer :: name(MPI_STATUS_SIZE)
#define STATUSES(name) integer :: name(MPI_STATUS_SIZE, 4)
#define OF(status, field) status(field)
#endif
#if defined(MODULE_MPI)
  use mpi
#endif
  implicit none
#if !defined(F08) && !defined(MODULE_MPI)
  include 'mpif.h'
#endif
  integer :: rank, size, next, before, i, k, ierr, idx, some, places(4)
  logical :: flag
  double precision :: out(64), in(64), more(64)
  REQUEST :: r(4), many(200)
  STATUS(s)
  STATUSES(ss)
  COMM :: half
  out = 0
  call MPI_Init(ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
  call MPI_Comm_size(MPI_COMM_WORLD, size, ierr)
  next = mod(rank + 1, size)
  before = mod(rank + size - 1, size)
  call MPI_Comm_split(MPI_COMM_WORLD, mod(rank, 2), -rank, half, ierr)
  do i = 1, 3
    call MPI_Irecv(in, 64, MPI_DOUBLE_PRECISION, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, r(1), ierr)
    call MPI_Isend(out, 8, MPI_DOUBLE_PRECISION, next, 10, MPI_COMM_WORLD, r(2), ierr)
    call MPI_Waitall(2, r, MPI_STATUSES_IGNORE, ierr)
    call MPI_Irecv(in, 64, MPI_DOUBLE_PRECISION, before, 11, MPI_COMM_WORLD, r(1), ierr)
    call MPI_Issend(out, 9, MPI_DOUBLE_PRECISION, next, 11, MPI_COMM_WORLD, r(2), ierr)
    call MPI_Wait(r(1), s, ierr)
    if (OF(s, MPI_SOURCE) /= before .or. OF(s, MPI_TAG) /= 11) call MPI_Abort(MPI_COMM_WORLD, 3, ierr)
    call MPI_Wait(r(2), MPI_STATUS_IGNORE, ierr)
    call MPI_Irecv(in, 4, MPI_DOUBLE_PRECISION, before, 12, MPI_COMM_WORLD, r(1), ierr)
    call MPI_Isend(out, 4, MPI_DOUBLE_PRECISION, next, 12, MPI_COMM_WORLD, r(2), ierr)
    do k = 1, 2
      call MPI_Waitany(2, r, idx, MPI_STATUS_IGNORE, ierr)
      if (idx < 0 .or. idx > 2) call MPI_Abort(MPI_COMM_WORLD, 4, ierr)
    end do
    call MPI_Irecv(in, 4, MPI_DOUBLE_PRECISION, before, 13, MPI_COMM_WORLD, r(1), ierr)
    call MPI_Isend(out, 4, MPI_DOUBLE_PRECISION, next, 13, MPI_COMM_WORLD, r(2), ierr)
    k = 0
    do while (k < 2)
      call MPI_Waitsome(2, r, some, places, ss, ierr)
      k = k + some
    end do
    call MPI_Irecv(in, 4, MPI_DOUBLE_PRECISION, before, 14, MPI_COMM_WORLD, r(1), ierr)
    call MPI_Isend(out, 4, MPI_DOUBLE_PRECISION, next, 14, MPI_COMM_WORLD, r(2), ierr)
    flag = .false.
    do while (.not. flag)
      call MPI_Testall(2, r, flag, MPI_STATUSES_IGNORE, ierr)
    end do
    call MPI_Irecv(in, 4, MPI_DOUBLE_PRECISION, before, 15, MPI_COMM_WORLD, r(1), ierr)
    call MPI_Send(out, 4, MPI_DOUBLE_PRECISION, next, 15, MPI_COMM_WORLD, ierr)
    flag = .false.
    do while (.not. flag)
      call MPI_Test(r(1), flag, MPI_STATUS_IGNORE, ierr)
    end do
    call MPI_Send_init(out, 5, MPI_DOUBLE_PRECISION, next, 16, MPI_COMM_WORLD, r(1), ierr)
    call MPI_Recv_init(in, 5, MPI_DOUBLE_PRECISION, before, 16, MPI_COMM_WORLD, r(2), ierr)
    call MPI_Startall(2, r, ierr)
    call MPI_Waitall(2, r, ss, ierr)
    call MPI_Start(r(1), ierr)
    call MPI_Start(r(2), ierr)
    call MPI_Waitall(2, r, ss, ierr)
    call MPI_Request_free(r(1), ierr)
    call MPI_Request_free(r(2), ierr)
    call MPI_Sendrecv(out, 1, MPI_INTEGER, next, 17, in, 1, MPI_INTEGER, before, 17, MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierr)
    call MPI_Sendrecv_replace(out, 1, MPI_INTEGER, next, 18, before, 18, MPI_COMM_WORLD, s, ierr)
    if (rank == 0) call MPI_Ssend(out, 3, MPI_DOUBLE_PRECISION, 1, 19, MPI_COMM_WORLD, ierr)
    if (rank == 1) call MPI_Recv(in, 64, MPI_DOUBLE_PRECISION, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierr)
    call MPI_Recv(in, 64, MPI_DOUBLE_PRECISION, MPI_PROC_NULL, 7, MPI_COMM_WORLD, s, ierr)
    call MPI_Isend(out, 6, MPI_DOUBLE_PRECISION, next, 20, MPI_COMM_WORLD, r(1), ierr)
    call MPI_Probe(before, 20, MPI_COMM_WORLD, s, ierr)
    call MPI_Recv(in, 6, MPI_DOUBLE_PRECISION, before, 20, MPI_COMM_WORLD, s, ierr)
    call MPI_Wait(r(1), s, ierr)
    call MPI_Bcast(out, 8, MPI_DOUBLE_PRECISION, 2, MPI_COMM_WORLD, ierr)
    call MPI_Allreduce(MPI_IN_PLACE, in, 8, MPI_DOUBLE_PRECISION, MPI_SUM, half, ierr)
    call MPI_Gather(out, 2, MPI_INTEGER, in, 2, MPI_INTEGER, 1, MPI_COMM_WORLD, ierr)
    call MPI_Iallreduce(out, in, 4, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, r(1), ierr)
    call MPI_Wait(r(1), MPI_STATUS_IGNORE, ierr)
    call MPI_Barrier(half, ierr)
  end do
  do k = 1, 100
    call MPI_Irecv(more(mod(k, 64) + 1), 1, MPI_INTEGER, before, 30, MPI_COMM_WORLD, many(k), ierr)
  end do
  do k = 1, 100
    call MPI_Isend(out, 1, MPI_INTEGER, next, 30, MPI_COMM_WORLD, many(100 + k), ierr)
  end do
  call MPI_Waitall(200, many, MPI_STATUSES_IGNORE, ierr)
  call MPI_Comm_free(half, ierr)
  call MPI_Finalize(ierr)
end program
