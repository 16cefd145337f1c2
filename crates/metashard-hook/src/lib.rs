//! All talk with tenants' hooks: requests spliced from bytes, limits, answers.
