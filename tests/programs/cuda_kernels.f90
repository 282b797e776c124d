! A Fortran program for the stand-in for NVIDIA's libraries (tests/stand-ins/cupti). One subroutine launches a kernel through the
! runtime, and another one launches a kernel that takes three times as long through the driver.
module cuda
    use iso_c_binding
    implicit none
    type, bind(c) :: kernel
        type(c_ptr) :: name
        integer(c_int64_t) :: nanoseconds
    end type
    type, bind(c) :: dim3
        integer(c_int) :: x = 1, y = 1, z = 1
    end type
    interface
        integer(c_int) function runtime_launch(what, grid, block, arguments, shared, stream) bind(c, name='cudaLaunchKernel')
            import
            type(kernel), intent(in) :: what
            type(dim3), value :: grid, block
            type(c_ptr), value :: arguments, stream
            integer(c_size_t), value :: shared
        end function
        integer(c_int) function driver_launch(what, stream) bind(c, name='cuLaunchKernel')
            import
            type(kernel), intent(in) :: what
            type(c_ptr), value :: stream
        end function
        integer(c_int) function synchronize() bind(c, name='cudaDeviceSynchronize')
            import
        end function
    end interface
    character(kind=c_char, len=11), target :: light = '_Z5lightPf' // c_null_char, heavy = '_Z5heavyPf' // c_null_char
    integer :: launched = 0
contains
    subroutine smooth()
        if (runtime_launch(kernel(c_loc(light), 1000000), dim3(), dim3(), c_null_ptr, 0_c_size_t, c_null_ptr) /= 0) stop 1
        launched = launched + 1
    end subroutine
    subroutine solve()
        if (driver_launch(kernel(c_loc(heavy), 3000000), c_null_ptr) /= 0) stop 1
        launched = launched + 1
    end subroutine
end module

program kernels
    use cuda
    implicit none
    integer :: round
    do round = 1, 50
        call smooth()
        call solve()
        if (synchronize() /= 0) stop 1
    end do
    print '(a, i0)', 'launched ', launched
end program
