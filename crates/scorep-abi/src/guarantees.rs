//! Score-P's promises to its plugins. `SAFETY` comments cite these promises by name. Score-P 8.4's documentation, headers and
//! behaviour are the source; the embedded host keeps the same promises.
//!
//! | name | promise |
//! | --- | --- |
//! | ONE WRITER | At any time, at most one thread executes event functions of a location. |
//! | | This need not be the thread that created the location, and a signal handler that interrupts the thread may record events, too. |
//! | LOCATION LIFE | A location's address is valid, and always means that location, from `create_location` until `delete_location`. |
//! | LOCATION DATA | A pointer that a plugin attaches to a location is returned unchanged. Before that, NULL is returned. |
//! | QUIET LOCATION | `activate_cpu_location`, `deactivate_cpu_location` and `delete_location` are called |
//! | | by the thread that writes the location's events, or when no thread writes them. |
//! | EVENT TYPES | Score-P calls entry n of the event array with the arguments of event n. It keeps the array until the process ends. |
//! | OWN HANDLES | A handle that Score-P passes is valid in its process until `finalize`, and may be passed to the functions for its kind. |
//! | KEPT STRINGS | A string that a callback returns is NULL, or NUL-terminated and kept until `finalize`. |
//! | CALLBACK TABLE | `set_callbacks` hands over a table of `size` bytes, which stays until the process ends. |
//! | AFTER INIT_MPP | Rank and size may be requested from `init_mpp` on. |
//! | ANY-TIME CLOCK | The clock function of a metric plugin may be called at any time, by any thread. |
//! | FREES WITH FREE | With `free`, Score-P frees memory that a metric plugin hands over (properties, their strings, values). |
