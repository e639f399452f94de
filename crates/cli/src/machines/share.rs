//! `transom share`: directories that a machine gets and loses while it runs.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Args, Subcommand};
use transom_vm::{
    Error, Result,
    keep::{Machine, ShareRequest, SharedDirectory},
};

use crate::tell::tell;

/// Add directories to a machine that `transom run --keep` has started, and remove them
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct Share {
    #[command(subcommand)]
    change: Change,
}

#[derive(Debug, Subcommand)]
enum Change {
    /// Mount a directory of this machine in the machine NAME
    ///
    /// HOST, GUEST and OPTION are those of `transom run --share`, without overlay and dax. What the machine was started
    /// with applies: --hide, --disk, --rate and --daemon-arg. A machine has room for six shares, its root among them.
    /// Changes of the host raise no events in it.
    Add {
        /// The machine
        name: String,
        /// The directory
        #[arg(value_name = "HOST[:GUEST][,OPTION]...")]
        share: OsString,
    },
    /// Unmount a directory that `transom share add` has added
    ///
    /// Refused while a program in the machine uses it. What was written is on this machine then, and nothing here has
    /// the directory open any more.
    Remove {
        /// The machine
        name: String,
        /// The path in the guest
        guest: PathBuf,
    },
}

impl Share {
    pub(crate) fn execute(self) -> ExitCode {
        let changed = match &self.change {
            Change::Add { name, share } => add(name, share),
            Change::Remove { name, guest } => remove(name, guest),
        };
        match changed {
            Ok(text) => {
                tell(text);
                ExitCode::SUCCESS
            }
            Err(error) => {
                tell(error);
                ExitCode::FAILURE
            }
        }
    }
}

fn add(name: &str, share: &OsStr) -> Result<String> {
    // The process that keeps the machine has another working directory.
    let mut words = share.as_bytes().to_vec();
    if !words.is_empty() && !words.starts_with(b"/") {
        let here = std::env::current_dir().map_err(Error::io("cannot find the working directory"))?;
        words = [escaped(&here), b"/".to_vec(), words].concat();
    }
    let SharedDirectory { host, guest, .. } =
        Machine::connect(name)?.change_share(ShareRequest::Add(OsString::from_vec(words)))?;
    Ok(format!("{} is mounted at {} in the machine {name}", host.display(), guest.display()))
}

fn remove(name: &str, guest: &Path) -> Result<String> {
    let plain: PathBuf = guest.components().collect();
    let SharedDirectory { host, .. } = Machine::connect(name)?.change_share(ShareRequest::Remove(plain))?;
    Ok(format!("{} is not in the machine {name} any more", host.display()))
}

/// Returns a path with a backslash before each colon, comma and backslash.
fn escaped(path: &Path) -> Vec<u8> {
    let mut escaped = Vec::new();
    for &byte in path.as_os_str().as_bytes() {
        if matches!(byte, b':' | b',' | b'\\') {
            escaped.push(b'\\');
        }
        escaped.push(byte);
    }
    escaped
}
