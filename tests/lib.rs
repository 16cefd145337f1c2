//! Nothing but a home for the integration tests beside it.
