//! Models of election and hand-over: the real machines against an API server whose every state is known, explored in all
//! interleavings within stated bounds.
//!
//! Time goes in ticks of half a second, and a Lease lasts four of them. What is not disturbed happens within the tick
//! in which it is due; each disturbance (a slow request, a slow answer, a lagging watch, a pause) is taken from a
//! [`Budget`](budget::Budget), at every place where it could occur, and lasts as long as it likes.

mod budget;
mod clock;
mod election;
mod fleet;
mod flight;
mod process;
mod server;
#[cfg(test)]
mod tests;
