//! Macros for C's structures and enums. Each row contains the name in Score-P's headers, so that a test can compare the whole
//! list with the output of a program that was compiled with those headers.

/// Defines a structure. Each row gives the offset in bytes, the field, its type, its value in `EMPTY`, and its name in C. Offsets
/// and size are asserted at compile time.
macro_rules! c_struct {
    ($(#[$doc:meta])* $name:ident = $c_struct:literal, $bytes:literal bytes {
        $($offset:literal $field:ident: $type:ty = $empty:expr, $c_name:literal;)*
    }) => {
        $(#[$doc])*
        #[repr(C)]
        #[derive(Clone, Copy)]
        pub struct $name {
            $(#[doc = concat!("`", $c_name, "`")] pub $field: $type,)*
        }

        impl $name {
            /// The structure with only the interface's version set, if there is such a field; all else is zero or NULL.
            pub const EMPTY: $name = $name { $($field: $empty,)* };
            /// The name in C, the size in bytes, and each field's name in C with its offset.
            pub const LAYOUT: (&str, usize, &[(&str, usize)]) =
                ($c_struct, $bytes, &[$(($c_name, $offset),)*]);
        }

        const _: () = {
            assert!(size_of::<$name>() == $bytes);
            $(assert!(std::mem::offset_of!($name, $field) == $offset);)*
        };
    };
}

/// Defines an enum as constants in a module. Each row gives the constant, its name in C if that is not the prefix followed by the
/// constant's name, and its value.
macro_rules! c_enum {
    ($(#[$doc:meta])* $name:ident: $type:ty = $c_enum:literal, $prefix:literal {
        $($constant:ident $(($c_name:literal))? = $value:literal,)*
    }) => {
        $(#[$doc])*
        pub mod $name {
            $(
                #[doc = concat!("`", $crate::c::c_name!($prefix $constant $($c_name)?), "`")]
                pub const $constant: $type = $value;
            )*
            /// The enum's name in C, and each constant's name with its value.
            pub const VALUES: (&str, &[(&str, i64)]) =
                ($c_enum, &[$(($crate::c::c_name!($prefix $constant $($c_name)?), $value),)*]);
        }
    };
}

macro_rules! c_name {
    ($prefix:literal $constant:ident) => {
        concat!($prefix, stringify!($constant))
    };
    ($prefix:literal $constant:ident $c_name:literal) => {
        $c_name
    };
}

pub(crate) use {c_enum, c_name, c_struct};
