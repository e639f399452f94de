//! What guests need here.

use std::{
    env,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// Returns whether guests cannot run here, and prints the reason.
pub(crate) fn is_skipped(test: &str) -> bool {
    let daemon = env::var_os("TRANSOM_DAEMON")
        .map_or_else(|| Path::new(env!("CARGO_BIN_EXE_transom")).with_file_name("transomd"), PathBuf::from);
    let has_qemu = Command::new("qemu-system-x86_64").arg("--version").stdout(Stdio::null()).status().is_ok();
    let reason = match (has_qemu, daemon.is_file()) {
        (true, true) => return false,
        (false, _) => "no qemu-system-x86_64 in PATH".to_owned(),
        (true, false) => format!("no daemon {daemon:?}; build transomd"),
    };
    eprintln!("SKIPPED: {test}: {reason}");
    true
}
