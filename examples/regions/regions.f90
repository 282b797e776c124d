! Two kinds of work, marked as regions, and their steps counted: `make`, then `ampere run ./regions_f90`.
program regions
  use ampere
  implicit none
  real(8) :: x = 1
  integer :: step
  call ampere_mark("start")
  do step = 1, 20
    call ampere_region_begin("assemble")
    x = x + grow(x, 1000000)
    call ampere_region_end("assemble")
    call ampere_region_begin("solve")
    x = x + grow(x, 3000000)
    call ampere_region_end("solve")
    call ampere_work("steps", 1)
  end do
  print "(f0.3)", x
contains
  real(8) function grow(x, rounds)
    real(8), intent(in) :: x
    integer, intent(in) :: rounds
    integer :: round
    grow = x
    do round = 0, rounds - 1
      grow = sqrt(grow + round)
    end do
  end function
end program
