//! Example hooks, each a small HTTP server, and the manifests that use them.
