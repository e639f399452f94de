//! What people write: `transom mount`, and `mount.transom` as mount(8) calls it for `fstab`.

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

/// The name by which mount(8) calls for a type `transom`.
const HELPER: &str = "mount.transom";
/// Of a source in `fstab`: `transom#/srv/share`.
const SOURCE_PREFIX: &str = "transom#";

/// Mount the share of a virtio-fs daemon on this machine, without a virtual machine.
///
/// The kernel's own FUSE client is the guest: what it asks goes through real virtqueues to the daemon. Without root it
/// takes fusermount3, of the package fuse3.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct MountArgs {
    #[command(flatten)]
    from: Source,

    /// Options as in fstab: ro, nosuid, passthrough, reconnect[=SECONDS], threads=N and others; may be given several times
    #[arg(short = 'o', value_name = "OPTIONS", allow_hyphen_values = true)]
    options: Vec<String>,

    /// Let the kernel read, write and map the host's files itself, without requests; takes root and Linux 6.9
    #[arg(long)]
    passthrough: bool,

    /// Go on with a new daemon when the old one is gone: files stay open, requests wait meanwhile
    #[arg(long, conflicts_with = "passthrough")]
    reconnect: bool,

    /// Stay in the foreground, which is the default
    #[arg(short = 'f', conflicts_with = "background")]
    foreground: bool,

    /// Return once it is mounted, and serve in the background
    #[arg(long, short = 'b')]
    background: bool,

    /// Where to mount
    #[arg(value_name = "MOUNTPOINT")]
    mountpoint: PathBuf,

    /// Arguments for the daemon that is started, behind `--`: --cache=always, --writeback, --xattr and others
    #[arg(last = true, value_name = "DAEMON_ARG", conflicts_with = "socket")]
    daemon_args: Vec<OsString>,
}

const EXAMPLES: &str = "\
Examples:
  transom mount --shared-dir /srv/share /mnt
      Until Ctrl-C, or `umount /mnt`.
  transom mount -b -o ro,threads=2 --shared-dir /srv/share /mnt -- --cache=always --xattr
      In the background; what follows -- is for transomd.
  transom mount --passthrough --shared-dir /srv/share /mnt
      Reads, writes and mappings go to the host's page cache; the daemon opens and closes.
  transom mount --reconnect --shared-dir /srv/share /mnt
      When the daemon dies it is started again, and what programs have open stays open.
  transom mount --socket /run/share.sock /mnt
      The share of a daemon that is already there and has no guest yet; with -o reconnect=300 it can be replaced by
      another one within 5 minutes.
  mount -t transom /srv/share /mnt
  transom#/srv/share /mnt transom ro,cache=always,nofail 0 0
      By mount(8) and in fstab, where a link named mount.transom to this program lies in /sbin.

Exit status: 0 once it is unmounted; 1 if it cannot be mounted or the daemon is gone; 2 for a wrong command line.";

/// As mount(8) calls its helpers.
#[derive(Debug, Parser)]
#[command(name = HELPER, version, about = "Mounts a share in the background; mount(8) calls it for the type transom")]
struct Helper {
    /// A directory, or the socket of a daemon; `transom#` may stand before it
    source: OsString,
    mountpoint: PathBuf,
    /// The options of `transom mount -o`, and those of the daemon: cache=WHEN, xattr and others
    #[arg(short = 'o', value_name = "OPTIONS")]
    options: Vec<String>,
    /// Stay in the foreground
    #[arg(short = 'f')]
    foreground: bool,
    /// What mount(8) adds of its own
    #[arg(short = 'n', hide = true)]
    no_mtab: bool,
    #[arg(short = 's', hide = true)]
    sloppy: bool,
    #[arg(short = 'v', hide = true)]
    verbose: bool,
    #[arg(short = 't', hide = true)]
    kind: Option<String>,
}

/// Where this program was called by the name of mount(8)'s helper, what it ends with.
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
        let mut daemon_args = if self.from.starts_transomd() { options.daemon_args() } else { Vec::new() };
        daemon_args.extend_from_slice(&self.daemon_args);
        let source = self.from.builder(daemon_args.clone())?;
        let request = Request { source, mountpoint: self.mountpoint.clone(), options, daemon_args };
        if self.background { background::run(&request) } else { foreground(&request) }
    }
}

impl Helper {
    fn run(&self) -> Result<()> {
        let source = self.source.to_str().context("a source that is no UTF-8")?;
        let source = Path::new(source.strip_prefix(SOURCE_PREFIX).unwrap_or(source));
        let (mut options, mut daemon_args) = (Options::default(), Vec::new());
        for option in self.options.iter().flat_map(|list| list.split(',')) {
            match options.parse(option) {
                Err(OptionError::Unknown(_)) => {
                    daemon_args.push(OsString::from(format!("--{}", option.replace('_', "-"))));
                }
                parsed => parsed?,
            }
        }
        if options.flags.contains(MountFlags::RDONLY) {
            daemon_args.push("--readonly".into());
        }
        let kind = std::fs::metadata(source).with_context(|| format!("{}", source.display()))?.file_type();
        let source = if std::os::unix::fs::FileTypeExt::is_socket(&kind) {
            anyhow::ensure!(daemon_args.is_empty(), "the daemon of a socket runs already: it takes no {daemon_args:?}");
            Share::builder().socket(source)
        } else {
            daemon_args.splice(0..0, options.daemon_args());
            directory(source, None, daemon_args.clone())
        };
        let request = Request { source, mountpoint: self.mountpoint.clone(), options, daemon_args };
        if self.foreground { foreground(&request) } else { background::run(&request) }
    }
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
