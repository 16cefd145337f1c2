//! The generated messages, client and server.

#![expect(
    missing_docs,
    unused_qualifications,
    clippy::allow_attributes,
    clippy::allow_attributes_without_reason,
    clippy::clone_on_ref_ptr,
    clippy::default_trait_access,
    clippy::derive_partial_eq_without_eq,
    clippy::missing_errors_doc,
    clippy::too_many_lines,
    reason = "generated code; its comments are those of the .proto file"
)]

tonic::include_proto!("metashard.fleet.v1");
