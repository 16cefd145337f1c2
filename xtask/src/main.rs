//! Repository chores: gate, demo, generate, tidy, kubernetes.

fn main() {}
