//! The vocabulary: OTF2's and Score-P's words as types, without dependencies.
