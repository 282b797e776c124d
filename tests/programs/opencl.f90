! A Fortran program that uses OpenCL. One subroutine launches kernels, and another one copies to the device.
module opencl
    use iso_c_binding
    implicit none
    interface
        integer(c_int) function clGetPlatformIDs(room, platforms, found) bind(c, name='clGetPlatformIDs')
            import
            integer(c_int), value :: room
            type(c_ptr), intent(out) :: platforms
            type(c_ptr), value :: found
        end function
        integer(c_int) function clGetDeviceIDs(platform, kind, room, devices, found) bind(c, name='clGetDeviceIDs')
            import
            type(c_ptr), value :: platform, found
            integer(c_int64_t), value :: kind
            integer(c_int), value :: room
            type(c_ptr), intent(out) :: devices
        end function
        type(c_ptr) function clCreateContext(properties, count, devices, notify, data, code) bind(c, name='clCreateContext')
            import
            type(c_ptr), value :: properties, notify, data
            integer(c_int), value :: count
            type(c_ptr), intent(in) :: devices
            integer(c_int), intent(out) :: code
        end function
        type(c_ptr) function clCreateCommandQueue(context, device, properties, code) bind(c, name='clCreateCommandQueue')
            import
            type(c_ptr), value :: context, device
            integer(c_int64_t), value :: properties
            integer(c_int), intent(out) :: code
        end function
        type(c_ptr) function clCreateProgramWithSource(context, count, texts, lengths, code) &
            bind(c, name='clCreateProgramWithSource')
            import
            type(c_ptr), value :: context, lengths
            integer(c_int), value :: count
            type(c_ptr), intent(in) :: texts
            integer(c_int), intent(out) :: code
        end function
        integer(c_int) function clBuildProgram(program, count, devices, options, notify, data) bind(c, name='clBuildProgram')
            import
            type(c_ptr), value :: program, devices, options, notify, data
            integer(c_int), value :: count
        end function
        type(c_ptr) function clCreateKernel(program, name, code) bind(c, name='clCreateKernel')
            import
            type(c_ptr), value :: program, name
            integer(c_int), intent(out) :: code
        end function
        type(c_ptr) function clCreateBuffer(context, flags, bytes, memory, code) bind(c, name='clCreateBuffer')
            import
            type(c_ptr), value :: context, memory
            integer(c_int64_t), value :: flags
            integer(c_size_t), value :: bytes
            integer(c_int), intent(out) :: code
        end function
        integer(c_int) function clSetKernelArg(kernel, number, bytes, argument) bind(c, name='clSetKernelArg')
            import
            type(c_ptr), value :: kernel
            integer(c_int), value :: number
            integer(c_size_t), value :: bytes
            type(c_ptr), intent(in) :: argument
        end function
        integer(c_int) function clEnqueueNDRangeKernel(queue, kernel, dimensions, offset, items, group, waits, list, event) &
            bind(c, name='clEnqueueNDRangeKernel')
            import
            type(c_ptr), value :: queue, kernel, offset, group, list, event
            integer(c_int), value :: dimensions, waits
            integer(c_size_t), intent(in) :: items
        end function
        integer(c_int) function clEnqueueWriteBuffer(queue, buffer, blocks, offset, bytes, from, waits, list, event) &
            bind(c, name='clEnqueueWriteBuffer')
            import
            type(c_ptr), value :: queue, buffer, from, list, event
            integer(c_int), value :: blocks, waits
            integer(c_size_t), value :: offset, bytes
        end function
        integer(c_int) function clFinish(queue) bind(c, name='clFinish')
            import
            type(c_ptr), value :: queue
        end function
    end interface
    character(kind=c_char, len=*), parameter :: text = '__kernel void larger(__global float *of) { of[get_global_id(0)] += 1; }'
    character(kind=c_char, len=len(text) + 1), target :: source = text // c_null_char
    character(kind=c_char, len=7), target :: name = 'larger' // c_null_char
    real(c_float), target :: here(1000) = 0
    type(c_ptr) :: queue, kernel, buffer
    integer :: launched = 0
contains
    subroutine check(code)
        integer(c_int), intent(in) :: code
        if (code /= 0) stop 1
    end subroutine
    subroutine begin()
        integer(c_int64_t), parameter :: all_devices = int(z'ffffffff', c_int64_t)
        type(c_ptr) :: platform, device, context, program
        integer(c_int) :: code
        call check(clGetPlatformIDs(1, platform, c_null_ptr))
        call check(clGetDeviceIDs(platform, all_devices, 1, device, c_null_ptr))
        context = clCreateContext(c_null_ptr, 1, device, c_null_ptr, c_null_ptr, code)
        call check(code)
        queue = clCreateCommandQueue(context, device, 0_c_int64_t, code)
        call check(code)
        program = clCreateProgramWithSource(context, 1, c_loc(source), c_null_ptr, code)
        call check(code)
        call check(clBuildProgram(program, 0, c_null_ptr, c_null_ptr, c_null_ptr, c_null_ptr))
        kernel = clCreateKernel(program, c_loc(name), code)
        call check(code)
        buffer = clCreateBuffer(context, 1_c_int64_t, 4000_c_size_t, c_null_ptr, code)
        call check(code)
        call check(clSetKernelArg(kernel, 0, c_sizeof(buffer), buffer))
    end subroutine
    subroutine smooth()
        call check(clEnqueueNDRangeKernel(queue, kernel, 1, c_null_ptr, 1000_c_size_t, c_null_ptr, 0, c_null_ptr, c_null_ptr))
        launched = launched + 1
    end subroutine
    subroutine exchange()
        call check(clEnqueueWriteBuffer(queue, buffer, 1, 0_c_size_t, 4000_c_size_t, c_loc(here), 0, c_null_ptr, c_null_ptr))
    end subroutine
end module

program kernels
    use opencl
    implicit none
    integer :: round
    call begin()
    do round = 1, 50
        call smooth()
        call exchange()
        call check(clFinish(queue))
    end do
    print '(a, i0)', 'launched ', launched
end program
