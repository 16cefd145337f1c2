//! The gRPC contract between leader and workers: generated code and conversions.
