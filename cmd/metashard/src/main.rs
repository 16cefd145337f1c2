//! The metashard daemon.

fn main() {}
