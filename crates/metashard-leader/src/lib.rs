//! Service: drives the election, keeps the shard map, serves the assignment gRPC.
