! A Fortran program for the stand-in for HIP (tests/programs/amdhip64.c). One subroutine launches kernels, and another one copies to
! the GPU.
module hip
    use iso_c_binding
    implicit none
    type, bind(c) :: work
        real(c_double) :: seconds = 0.001
        integer(c_int) :: odd = 0
        real(c_double) :: begin = 0, end = 0
    end type
    type, bind(c) :: dim3
        integer(c_int) :: x = 1, y = 1, z = 1
    end type
    interface
        subroutine register(modules, what, device, name, limit, a, b, c, d, e) bind(c, name='__hipRegisterFunction')
            import
            type(c_ptr), value :: modules, what, device, name, a, b, c, d, e
            integer(c_int), value :: limit
        end subroutine
        integer(c_int) function launch(what, grid, block, arguments, shared, stream) bind(c, name='hipLaunchKernel')
            import
            type(c_ptr), value :: what, stream
            type(dim3), value :: grid, block
            type(c_ptr), intent(in) :: arguments(*)
            integer(c_size_t), value :: shared
        end function
        integer(c_int) function copy(to, from, bytes, kind, stream) bind(c, name='hipMemcpyAsync')
            import
            type(c_ptr), value :: to, from, stream
            integer(c_size_t), value :: bytes
            integer(c_int), value :: kind
        end function
        integer(c_int) function synchronize() bind(c, name='hipDeviceSynchronize')
            import
        end function
    end interface
    character(kind=c_char, len=16), target :: kernel = '_Z6largerPdm.kd' // c_null_char
    type(work), target :: larger = work()
    real(c_double), target :: here(1000) = 0, there(1000) = 0
    integer :: launched = 0
contains
    subroutine smooth()
        if (launch(c_loc(kernel), dim3(), dim3(), [c_loc(larger)], 0_c_size_t, c_null_ptr) /= 0) stop 1
        launched = launched + 1
    end subroutine
    subroutine exchange()
        if (copy(c_loc(there), c_loc(here), 8000_c_size_t, 1, c_null_ptr) /= 0) stop 1
    end subroutine
end module

program kernels
    use hip
    implicit none
    integer :: round
    call register(c_null_ptr, c_loc(kernel), c_loc(kernel), c_loc(kernel), 0, &
        c_null_ptr, c_null_ptr, c_null_ptr, c_null_ptr, c_null_ptr)
    do round = 1, 50
        call smooth()
        call exchange()
        if (synchronize() /= 0) stop 1
    end do
    print '(a, i0)', 'launched ', launched
end program
