//! The whole, as real processes against a real API server.
