//! Service: health, metrics and status endpoints.
