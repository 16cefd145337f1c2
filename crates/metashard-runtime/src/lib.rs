//! The process: clock, logs, metrics, certificates, named tasks, shutdown.
