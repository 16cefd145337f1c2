//! All talk with the API server: clients, discovery, caches of bytes, Leases, the write gate, events.
