! Calls the actions of actions.c from a Fortran main program.
program main
  use iso_c_binding
  implicit none
  interface
    integer(c_int) function actions(argc, argv) bind(c)
      import
      integer(c_int), value :: argc
      type(c_ptr) :: argv(*)
    end function
  end interface
  integer :: i, n, status
  character(kind=c_char, len=256), target :: words(0:63)
  type(c_ptr) :: pointers(0:64)
  character(len=255) :: word
  real :: x
  n = min(command_argument_count(), 63)
  do i = 0, n
    call get_command_argument(i, word)
    words(i) = trim(word) // c_null_char
    pointers(i) = c_loc(words(i))
  end do
  pointers(n + 1) = c_null_ptr
  x = summed(1000)
  if (x > 0) print '(a)', 'Fortran'
  flush (6)
  status = actions(n + 1, pointers)
  call exit(status)
contains
  real function summed(count)
    integer, intent(in) :: count
    integer :: j
    summed = 0
    do j = 1, count
      summed = summed + sqrt(real(j))
    end do
  end function
end program
