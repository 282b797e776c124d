//! A safe writer and reader of OTF2 archives.
