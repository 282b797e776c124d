//! Policies: the rules by which joules are divided.

/// How the joules of a sample interval are divided among the frames that ran in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Policy {
    /// The joules are divided evenly over time; while no consumer is active, they are idle.
    #[default]
    TimeSliced,
    /// All joules are divided among the frames that ran, in proportion to their exclusive run time. They are idle only if no
    /// frame ran at all.
    BusyOnly,
    /// The energy that the device always draws is divided as by [`Policy::TimeSliced`]. The rest is divided among the frames
    /// that were active, in proportion to their active time. It is idle if none was active.
    Active,
}

/// Whether consumers that are active at the same time split the energy or each get all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Sharing {
    /// Consumers split the energy between them.
    #[default]
    Shared,
    /// Each consumer gets all of the energy, which is therefore counted several times, on purpose.
    Independent,
}

/// Gives each value of an enum its word. The compiler refuses a table without one of the values.
macro_rules! words {
    ($type:ident: $($value:ident $word:literal),*) => {
        impl $type {
            /// All values with their words, in the order in which they are listed for people.
            pub const WORDS: &[(&str, $type)] = &[$(($word, $type::$value)),*];

            /// Returns the word for the value in settings and in the summary.
            pub fn as_str(self) -> &'static str {
                match self {
                    $($type::$value => $word),*
                }
            }
        }
    };
}

words!(Policy: Active "active", TimeSliced "time_sliced", BusyOnly "busy_only");
words!(Sharing: Shared "shared", Independent "independent");
