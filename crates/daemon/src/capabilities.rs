//! The output of `--print-capabilities`.
//!
//! Management software runs the daemon with this option alone and decides from the features how to start it. The text
//! is the interface: apart from a missing feature, it matches to the byte what such software was tested against.

/// The output, without its final newline.
///
/// Source: QEMU's `docs/interop/vhost-user.json`, and the output of virtiofsd 1.14, without `migrate-precopy`: the
/// state of the share does not travel, and management software should refuse a migration before it begins.
pub const CAPABILITIES: &str = r#"{
  "type": "fs",
  "features": [
    "posix-acl-negotiation-mode",
    "security-label-negotiation-mode",
    "separate-options"
  ]
}"#;
