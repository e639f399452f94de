//! What `--print-capabilities` answers.
//!
//! Management software runs the daemon with this one option, and decides by the features how to start it. The text is
//! the interface, to the byte: it is the one that such software has been tested against.

/// The answer, without its final newline.
///
/// Source: QEMU's `docs/interop/vhost-user.json`, and virtiofsd 1.14's own answer.
pub const CAPABILITIES: &str = r#"{
  "type": "fs",
  "features": [
    "migrate-precopy",
    "posix-acl-negotiation-mode",
    "security-label-negotiation-mode",
    "separate-options"
  ]
}"#;
