//! Shared memory between the application and the collector: records, rings, definitions log, session.
