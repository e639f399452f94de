//! The command lines of `transom mount`, and of `mount.transom`, which mount(8) runs for entries in `fstab`.

use std::{
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context as _, Result};
use clap::{Args, Parser};
use rustix::mount::MountFlags;
use transom_mount::{OptionError, Options};
use transom_user::share::Share;

use super::{
    background,
    serve::{Request, foreground},
};
use crate::source::{Source, directory};

/// The helper that mount(8) runs for the type `transom`.
const HELPER: &str = "mount.transom";
/// Prefix of a source in `fstab`, as in `transom#/srv/share`.
const SOURCE_PREFIX: &str = "transom#";

/// Mount the share of a virtio-fs daemon on this machine, without a virtual machine
///
/// The kernel's FUSE client acts as the guest: its requests go to the daemon through virtqueues. Mounting without root
/// needs fusermount3 from the package fuse3.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct MountArgs {
    #[command(flatten)]
    from: Source,

    /// Mount options as in fstab: ro, nosuid, passthrough, reconnect[=SECONDS], threads=N and others; may be repeated
    #[arg(short = 'o', value_name = "OPTIONS", allow_hyphen_values = true)]
    options: Vec<String>,

    /// Let the kernel read, write and map the host's files directly, without requests; needs root and Linux 6.9
    #[arg(long)]
    passthrough: bool,

    /// Survive the daemon: when it exits, connect to a new one; files stay open, and requests wait until then
    #[arg(long, conflicts_with = "passthrough")]
    reconnect: bool,

    /// Stay in the foreground (the default)
    #[arg(short = 'f', conflicts_with = "background")]
    foreground: bool,

    /// Return once the share is mounted, and serve it in the background
    #[arg(long, short = 'b')]
    background: bool,

    /// Where to mount
    #[arg(value_name = "MOUNTPOINT")]
    mountpoint: PathBuf,

    /// Arguments for the daemon that is started, after `--`: --cache=always, --writeback, --xattr and others
    #[arg(last = true, value_name = "DAEMON_ARG", conflicts_with = "socket")]
    daemon_args: Vec<OsString>,
}

const EXAMPLES: &str = "\
Examples:
  transom mount --shared-dir /srv/share /mnt
      Mount until Ctrl-C or `umount /mnt`.
  transom mount -b -o ro,threads=2 --shared-dir /srv/share /mnt -- --cache=always --xattr
      Mount in the background; arguments after -- go to transomd.
  transom mount --passthrough --shared-dir /srv/share /mnt
      Reads, writes and mappings access the host's page cache directly; the daemon only opens and closes files.
  transom mount --reconnect --shared-dir /srv/share /mnt
      If the daemon dies, it is started again, and files that programs have open stay open.
  transom mount --socket /run/share.sock /mnt
      Mount the share of a running daemon that has no guest yet. With -o reconnect=300, another daemon can take its
      place within 5 minutes.
  mount -t transom /srv/share /mnt
  transom#/srv/share /mnt transom ro,cache=always,nofail 0 0
      For mount(8) and fstab, install a link to this program as /sbin/mount.transom.

Exit status: 0 after unmounting; 1 if the share cannot be mounted or the daemon is gone; 2 for a usage error.";

/// The command line by which mount(8) runs its helpers.
#[derive(Debug, Parser)]
#[command(name = HELPER, version, about = "Mount a share in the background; run by mount(8) for the type transom")]
struct Helper {
    /// A directory, or the socket of a daemon, optionally prefixed with `transom#`
    source: OsString,
    mountpoint: PathBuf,
    /// The options of `transom mount -o`, and those of the daemon, such as cache=MODE and xattr
    #[arg(short = 'o', value_name = "OPTIONS")]
    options: Vec<String>,
    /// Stay in the foreground
    #[arg(short = 'f')]
    foreground: bool,
    /// Passed by mount(8); ignored
    #[arg(short = 'n', hide = true)]
    no_mtab: bool,
    #[arg(short = 's', hide = true)]
    sloppy: bool,
    #[arg(short = 'v', hide = true)]
    verbose: bool,
    #[arg(short = 't', hide = true)]
    kind: Option<String>,
}

/// Runs the helper if this program was called by the helper's name, and returns its exit code.
pub(crate) fn run_if_mount_helper() -> Option<ExitCode> {
    let name = std::env::args_os().next()?;
    (Path::new(&name).file_name() == Some(OsStr::new(HELPER))).then(|| {
        let helper = Helper::parse();
        exit_code(helper.run())
    })
}

impl MountArgs {
    pub(crate) fn execute(self) -> ExitCode {
        exit_code(self.run())
    }

    fn run(&self) -> Result<()> {
        let mut options = Options::default();
        self.options.iter().try_for_each(|list| options.parse(list))?;
        options.passthrough |= self.passthrough;
        if self.reconnect && options.reconnect.is_none() {
            options.parse("reconnect")?;
        }
        options.coherent |= self.from.is_in_group();
        let mut daemon_args = if self.from.starts_transomd() { options.daemon_args() } else { Vec::new() };
        daemon_args.extend_from_slice(&self.daemon_args);
        let source = self.from.builder(daemon_args.clone())?;
        let request = Request { source, mountpoint: self.mountpoint.clone(), options, daemon_args };
        if self.background { background::run(&request) } else { foreground(&request) }
    }
}

impl Helper {
    fn run(&self) -> Result<()> {
        let source = self.source.to_str().context("the source is not valid UTF-8")?;
        let source = Path::new(source.strip_prefix(SOURCE_PREFIX).unwrap_or(source));
        let (mut options, mut daemon_args) = (Options::default(), Vec::new());
        for option in self.options.iter().flat_map(|list| list.split(',')) {
            options.coherent |= option.starts_with("coherence_group=");
            match options.parse(option) {
                Err(OptionError::Unknown(_)) => {
                    daemon_args.push(daemon_arg(option));
                }
                parsed => parsed?,
            }
        }
        if options.flags.contains(MountFlags::RDONLY) {
            daemon_args.push("--readonly".into());
        }
        let kind = std::fs::metadata(source).with_context(|| format!("{}", source.display()))?.file_type();
        let source = if std::os::unix::fs::FileTypeExt::is_socket(&kind) {
            anyhow::ensure!(
                daemon_args.is_empty(),
                "cannot pass {daemon_args:?} to the daemon at a socket, which is already running"
            );
            Share::builder().socket(source)
        } else {
            daemon_args.splice(0..0, options.daemon_args());
            directory(source, None, daemon_args.clone())
        };
        let request = Request { source, mountpoint: self.mountpoint.clone(), options, daemon_args };
        if self.foreground { foreground(&request) } else { background::run(&request) }
    }
}

/// An option of `fstab`, where names have underscores, as an argument of the daemon. Values stay as they are.
fn daemon_arg(option: &str) -> OsString {
    let (name, value) = option.split_at(option.find('=').unwrap_or(option.len()));
    format!("--{}{value}", name.replace('_', "-")).into()
}

/// What a command ends with.
fn exit_code(outcome: Result<()>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("transom: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemons_option_keeps_the_underscores_of_its_value() {
        assert_eq!(daemon_arg("posix_lock"), "--posix-lock");
        assert_eq!(daemon_arg("coherence_group=my_group"), "--coherence-group=my_group");
        assert_eq!(daemon_arg("modcaps=+sys_admin:+linux_immutable"), "--modcaps=+sys_admin:+linux_immutable");
    }
}
