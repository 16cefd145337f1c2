//! The process: clock, logs, metrics, certificates, named tasks, shutdown.
//!
//! What every service of this program needs from the machine that it runs on, so that no other crate reads a clock,
//! spawns a task or touches a signal on its own.

pub mod build_info;
pub mod clock;
pub mod fault;
pub mod log;
pub mod metrics;
pub mod net;
pub mod pulse;
pub mod shutdown;
pub mod task;
pub mod tls;
