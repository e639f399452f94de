//! `transom share`: directories that a machine gets and loses while it runs.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use clap::{Args, Subcommand};
use transom_vm::{
    Error, Result,
    keep::{Machine, ShareChanged, ShareRequest, SharedDirectory},
};

use crate::{run::values::parse_seconds, tell::tell};

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
        /// How long the guest may take; after that, the directory is not shared
        #[arg(long, value_name = "SECONDS", value_parser = parse_seconds, default_value = "60")]
        timeout: Duration,
        /// The machine
        name: String,
        /// The directory
        #[arg(value_name = "HOST[:GUEST][,OPTION]...")]
        share: OsString,
    },
    /// Unmount a directory that `transom share add` has added
    ///
    /// What was written is on this machine then, and nothing here has the directory open any more. Refused while
    /// something in the machine uses it, which is named: an open file, a working directory, another mount of it, also
    /// in a container.
    Remove {
        /// Remove it even if it is in use: what is not written yet is lost
        ///
        /// What the guest can write back within the time is not lost. If it does not answer, the directory's daemon is
        /// killed.
        #[arg(long)]
        force: bool,
        /// How long the guest may take to write back; without --force, it goes on after that
        #[arg(long, value_name = "SECONDS", value_parser = parse_seconds, default_value = "60")]
        timeout: Duration,
        /// The machine
        name: String,
        /// The path in the guest
        guest: PathBuf,
    },
}

impl Share {
    pub(crate) fn execute(self) -> ExitCode {
        let changed = match &self.change {
            Change::Add { name, share, timeout } => add(name, share, *timeout),
            Change::Remove { name, guest, force, timeout } => remove(name, guest, *force, *timeout),
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

fn add(name: &str, share: &OsStr, timeout: Duration) -> Result<String> {
    // The process that keeps the machine has another working directory.
    let mut words = share.as_bytes().to_vec();
    if !words.is_empty() && !words.starts_with(b"/") {
        let here = std::env::current_dir().map_err(Error::io("cannot find the working directory"))?;
        words = [escaped(&here), b"/".to_vec(), words].concat();
    }
    let SharedDirectory { host, guest, .. } = change(name, ShareRequest::Add(OsString::from_vec(words)), timeout)?;
    Ok(format!("{} is mounted at {} in the machine {name}", host.display(), guest.display()))
}

fn remove(name: &str, guest: &Path, is_forced: bool, timeout: Duration) -> Result<String> {
    let plain: PathBuf = guest.components().collect();
    let SharedDirectory { host, .. } = change(name, ShareRequest::Remove { path: plain, is_forced }, timeout)?;
    Ok(format!("{} is not in the machine {name} any more", host.display()))
}

fn change(name: &str, request: ShareRequest, timeout: Duration) -> Result<SharedDirectory> {
    let ShareChanged { share, warning } = Machine::connect(name)?.change_share(request, timeout)?;
    if let Some(warning) = warning {
        tell(format_args!("the machine {name}: {warning}"));
    }
    Ok(share)
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
