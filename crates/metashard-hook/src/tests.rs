//! Calls over real sockets.
