//! The rules of the leader, each with replicas and workers against one server.

mod balance;
mod crash;
mod fleet;
mod hand_over;
mod map_loss;
mod recorded;
mod roll_out;
mod showing;
mod splits;
mod term;
mod wishes;
