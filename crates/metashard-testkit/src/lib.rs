//! For tests: a real cluster on loopback, fake hooks, replicas as processes, builders, waiting with a deadline.
