! ampere's own interface, for Fortran: marks regions and ranges, and counts units of work. Compile this file with the program,
! but without -finstrument-functions: otherwise its functions would be recorded, and would contain the regions that they begin.
!
!     use ampere
!     call ampere_region_begin("solve")
!     call ampere_work("steps", 100d0)
!     call ampere_region_end("solve")
!
! Blanks at the end of a name do not count. Without `ampere run`, the calls do nothing.
module ampere
  use, intrinsic :: iso_c_binding
  implicit none
  private
  public :: ampere_region_begin, ampere_region_end, ampere_mark, ampere_work, ampere_range_start, ampere_range_end

  ! The counterpart of struct ampere_functions in ampere.h.
  type, bind(c) :: functions
    type(c_funptr) :: region_begin, region_end, mark, work, range_start, range_end
  end type

  abstract interface
    subroutine named(name) bind(c)
      import :: c_char
      character(kind=c_char), intent(in) :: name(*)
    end subroutine
    subroutine counted(name, units) bind(c)
      import :: c_char, c_double
      character(kind=c_char), intent(in) :: name(*)
      real(c_double), value :: units
    end subroutine
    function starter(name) bind(c)
      import :: c_char, c_int64_t
      character(kind=c_char), intent(in) :: name(*)
      integer(c_int64_t) :: starter
    end function
    subroutine ender(range) bind(c)
      import :: c_int64_t
      integer(c_int64_t), value :: range
    end subroutine
    function number_of_functions() bind(c)
      import :: c_int
      integer(c_int) :: number_of_functions
    end function
    function getter(version) bind(c)
      import :: c_ptr, c_int
      integer(c_int), value :: version
      type(c_ptr) :: getter
    end function
  end interface

  interface
    function dlopen(file, mode) bind(c)
      import :: c_ptr, c_char, c_int
      character(kind=c_char), intent(in) :: file(*)
      integer(c_int), value :: mode
      type(c_ptr) :: dlopen
    end function
    function dlsym(handle, name) bind(c)
      import :: c_ptr, c_char, c_funptr
      type(c_ptr), value :: handle
      character(kind=c_char), intent(in) :: name(*)
      type(c_funptr) :: dlsym
    end function
  end interface

  interface ampere_work
    module procedure work_double, work_real, work_integer, work_long
  end interface

  logical, save :: is_sought = .false., is_found = .false.
  procedure(named), pointer, save :: region_begin, region_end, mark
  procedure(counted), pointer, save :: work
  ! Null if the library has no ranges: its first versions had only four functions.
  procedure(starter), pointer, save :: range_start => null()
  procedure(ender), pointer, save :: range_end

contains

  subroutine ampere_region_begin(name)
    character(*), intent(in) :: name
    if (found()) call region_begin(trim(name) // c_null_char)
  end subroutine

  subroutine ampere_region_end(name)
    character(*), intent(in) :: name
    if (found()) call region_end(trim(name) // c_null_char)
  end subroutine

  subroutine ampere_mark(name)
    character(*), intent(in) :: name
    if (found()) call mark(trim(name) // c_null_char)
  end subroutine

  ! Starts a range, which may overlap others and end on another thread, and returns its number for the end.
  function ampere_range_start(name) result(range)
    character(*), intent(in) :: name
    integer(c_int64_t) :: range
    range = 0
    if (found()) then
      if (associated(range_start)) range = range_start(trim(name) // c_null_char)
    end if
  end function

  subroutine ampere_range_end(range)
    integer(c_int64_t), intent(in) :: range
    if (found()) then
      if (associated(range_start)) call range_end(range)
    end if
  end subroutine

  subroutine work_double(name, units)
    character(*), intent(in) :: name
    real(c_double), intent(in) :: units
    if (found()) call work(trim(name) // c_null_char, units)
  end subroutine

  subroutine work_real(name, units)
    character(*), intent(in) :: name
    real(c_float), intent(in) :: units
    call work_double(name, real(units, c_double))
  end subroutine

  subroutine work_integer(name, units)
    character(*), intent(in) :: name
    integer(c_int32_t), intent(in) :: units
    call work_double(name, real(units, c_double))
  end subroutine

  subroutine work_long(name, units)
    character(*), intent(in) :: name
    integer(c_int64_t), intent(in) :: units
    call work_double(name, real(units, c_double))
  end subroutine

  ! Whether ampere's library is there. Several threads may make their first calls at the same time: all find the same library.
  logical function found()
    if (.not. is_sought) call find()
    found = is_found
  end function

  subroutine find()
    integer(c_int), parameter :: lazy = 1
    character(4096) :: file
    integer :: length, status
    type(c_ptr) :: library, table
    type(c_funptr) :: symbol
    procedure(getter), pointer :: get
    type(functions), pointer :: all
    call get_environment_variable("AMPERE_INTERFACE", file, length, status)
    if (status == 0 .and. length > 0) then
      library = dlopen(file(:length) // c_null_char, lazy)
      if (c_associated(library)) then
        symbol = dlsym(library, "ampere_interface" // c_null_char)
        if (c_associated(symbol)) then
          call c_f_procpointer(symbol, get)
          table = get(1_c_int)
          if (c_associated(table)) then
            call c_f_pointer(table, all)
            call c_f_procpointer(all%region_begin, region_begin)
            call c_f_procpointer(all%region_end, region_end)
            call c_f_procpointer(all%mark, mark)
            call c_f_procpointer(all%work, work)
            call find_ranges(library, all)
            is_found = .true.
          end if
        end if
      end if
    end if
    is_sought = .true.
  end subroutine

  subroutine find_ranges(library, all)
    type(c_ptr), intent(in) :: library
    type(functions), intent(in) :: all
    type(c_funptr) :: symbol
    procedure(number_of_functions), pointer :: number
    symbol = dlsym(library, "ampere_interface_functions" // c_null_char)
    if (.not. c_associated(symbol)) return
    call c_f_procpointer(symbol, number)
    if (number() < 6) return
    call c_f_procpointer(all%range_end, range_end)
    call c_f_procpointer(all%range_start, range_start)
  end subroutine
end module
