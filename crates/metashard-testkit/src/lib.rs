//! For tests, the demo and load scenarios: a real cluster on loopback, fake hooks, replicas as processes.
//!
//! - [`cluster::Cluster`]: etcd and kube-apiserver, ready in a few seconds, gone with the process that started them.
//! - [`hook::FakeHook`]: an HTTP server that records every call and answers as told.
//! - [`replica::Replica`]: `metashard` as a real process, with flags, signals and a captured log.
//! - [`history::History`]: judges what hooks saw and the API server carried out.
//! - [`proxy::Proxy`]: stands in front of the API server and makes it fail.
//! - [`calendar::Calendar`]: a clock of one process that can be set while it runs.
//! - [`terminal::Terminal`]: a terminal of a given width, and a program at it.
//! - [`wait`]: the one way to wait for something.
//! - [`shipped`]: the manifests that users apply.
//! - [`crds`]: small custom resources to reconcile.

pub mod apply;
pub mod assets;
pub mod calendar;
pub mod cluster;
pub mod crds;
pub mod group;
pub mod history;
pub mod hook;
pub mod loopback;
pub mod proxy;
pub mod replica;
pub mod shipped;
pub mod terminal;
pub mod tools;
pub mod wait;

pub use cluster::Cluster;
pub use hook::FakeHook;
pub use replica::Replica;
pub use terminal::Terminal;
