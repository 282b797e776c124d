! Two ranks, the mpif.h interface.
program pingpong
  implicit none
  include 'mpif.h'
  integer :: ierr, rank, size, other, i, in, out, length, good = 1
  integer :: buffer(4)
  character(len=MPI_MAX_PROCESSOR_NAME) :: host
  character(len=MPI_MAX_OBJECT_NAME) :: name
  call MPI_Init(ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
  call MPI_Comm_size(MPI_COMM_WORLD, size, ierr)
  call MPI_Get_processor_name(host, length, ierr)
  other = 1 - rank
  do i = 1, 10
    if (rank == 0) then
      buffer = i
      call MPI_Send(buffer, 4, MPI_INTEGER, other, 7, MPI_COMM_WORLD, ierr)
      call MPI_Recv(buffer, 4, MPI_INTEGER, other, 8, MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierr)
      if (any(buffer /= i + 1)) good = 0
    else
      call MPI_Recv(buffer, 4, MPI_INTEGER, other, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierr)
      buffer = buffer + 1
      call MPI_Send(buffer, 4, MPI_INTEGER, other, 8, MPI_COMM_WORLD, ierr)
    end if
  end do
  out = rank + 100
  call MPI_Sendrecv(out, 1, MPI_INTEGER, other, 3, in, 1, MPI_INTEGER, other, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierr)
  if (in /= other + 100) good = 0
  call MPI_Comm_set_name(MPI_COMM_WORLD, 'the world', ierr)
  call MPI_Comm_get_name(MPI_COMM_WORLD, name, length, ierr)
  if (trim(name) /= 'the world' .or. length /= 9) good = 0
  call MPI_Allreduce(MPI_IN_PLACE, good, 1, MPI_INTEGER, MPI_MIN, MPI_COMM_WORLD, ierr)
  if (rank == 0 .and. good == 1) print '(a)', 'pingpong ok'
  call MPI_Finalize(ierr)
end program
