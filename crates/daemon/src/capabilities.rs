//! The output of `--print-capabilities`.
//!
//! Management software runs the daemon with this option alone and decides from the features how to start it. The text
//! is the interface: it matches to the byte what such software was tested against.

/// The output, without its final newline.
///
/// Source: QEMU's `docs/interop/vhost-user.json`, and the output of virtiofsd 1.14.
pub const CAPABILITIES: &str = r#"{
  "type": "fs",
  "features": [
    "migrate-precopy",
    "posix-acl-negotiation-mode",
    "security-label-negotiation-mode",
    "separate-options"
  ]
}"#;
