//! The daemons of a run: one for each share.
//!
//! The socket listens before the daemon starts, which inherits it: whoever connects waits in the queue, so that
//! nobody has to look whether the daemon is ready, and the path's faults are found here.

use std::{
    fs::{self, File},
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::net::UnixListener,
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use rustix::process::{getegid, geteuid};

use crate::{Error, Result, Share, SharePoint, Supervised, Vmm};

/// A daemon that runs.
#[derive(Debug)]
pub(crate) struct Daemon {
    pub(crate) process: Supervised,
    pub(crate) point: SharePoint,
    /// Where it tells its figures, if the share has a window.
    pub(crate) metrics: Option<PathBuf>,
    log: PathBuf,
    host: PathBuf,
}

impl Daemon {
    /// Starts `program` for `share` under `tag`, with its socket and its log in `dir`.
    ///
    /// Errors: the program is missing, or the socket cannot be made.
    pub(crate) fn start(program: &Path, share: &Share, tag: &str, dir: &Path, vmm: &dyn Vmm) -> Result<Self> {
        if !program.is_file() {
            return Err(Error::Missing {
                what: "the daemon",
                path: program.to_owned(),
                advice: "build it (cargo build -p transom-daemon), or give another with --daemon".into(),
            });
        }
        let socket = dir.join(format!("{tag}.sock"));
        let listener = listen(&socket)?;
        let log = dir.join(format!("{tag}.log"));
        let output = File::create(&log).map_err(Error::io(format!("creating {log:?}")))?;

        let mut command = Command::new(program);
        command.arg(format!("--fd={}", listener.as_raw_fd()));
        command.arg("--shared-dir").arg(&share.host);
        command.arg("--sandbox").arg(sandbox());
        if !geteuid().is_root() {
            // The guest's root is this user: it owns the user's files, and the user owns what it creates.
            command.arg(format!("--translate-uid=map:0:{}:1", geteuid().as_raw()));
            command.arg(format!("--translate-gid=map:0:{}:1", getegid().as_raw()));
        }
        if share.is_read_only {
            command.arg("--readonly");
        }
        if let Some(cache) = share.cache {
            command.args(["--cache", cache.as_str()]);
        }
        let metrics = share.dax.is_some().then(|| dir.join(format!("{tag}.metrics")));
        if let (Some(dax), Some(metrics)) = (share.dax, &metrics) {
            // The device that has a window asks the daemon for the tag.
            command.arg(format!("--dax-window={}", dax.window_len)).args(["--tag", tag]);
            command.arg("--metrics-socket").arg(metrics);
        }
        command.args(vmm.daemon_args(tag)).args(&share.daemon_args);
        let both = output.try_clone().map_err(Error::io(format!("creating {log:?}")))?;
        command.stdin(Stdio::null()).stdout(both).stderr(output);
        let process = Supervised::spawn(command, vec![listener])?;
        let point = SharePoint { tag: tag.to_owned(), socket, has_window: share.dax.is_some() };
        Ok(Self { process, point, metrics, log, host: share.host.clone() })
    }

    /// The error that its end is, if it ended with a failure.
    pub(crate) fn failed(&mut self) -> Option<Error> {
        self.process.ended().filter(|status| !status.success()).map(|_| self.died())
    }

    /// The error that its end before time is.
    pub(crate) fn died(&mut self) -> Error {
        Error::Died {
            what: format!("the daemon of {:?}", self.host),
            status: self.process.ended().map_or_else(|| "still running".into(), |status| status.to_string()),
            output: fs::read_to_string(&self.log).unwrap_or_default(),
        }
    }
}

/// The daemon's sandbox: namespaces, which an ordinary user has by way of a user namespace where the system lets it.
fn sandbox() -> &'static str {
    if geteuid().is_root() || user_namespaces_work() { "namespace" } else { "none" }
}

/// Whether this user may make a user namespace, as far as the kernel's settings say.
fn user_namespaces_work() -> bool {
    let setting = |name: &str| fs::read_to_string(Path::new("/proc/sys").join(name)).ok();
    let is = |name: &str, value: &str| setting(name).is_some_and(|text| text.trim() == value);
    Path::new("/proc/self/ns/user").exists()
        && !is("user/max_user_namespaces", "0")
        && !is("kernel/unprivileged_userns_clone", "0")
        && !is("kernel/apparmor_restrict_unprivileged_userns", "1")
}

fn listen(socket: &Path) -> Result<OwnedFd> {
    let listener = UnixListener::bind(socket).map_err(Error::io(format!(
        "listening at {socket:?} ({} bytes; a socket's path has at most 107)",
        socket.as_os_str().len()
    )))?;
    Ok(listener.into())
}
