//! The daemons of a run, one for each share.
//!
//! A [`Daemon`] inherits a socket that is already listening. Connections wait in its queue, so there is no need to wait
//! until the daemon is ready, and errors of the path are reported here.

use std::{
    ffi::OsString,
    fs::{self, File},
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::net::UnixListener,
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use rustix::process::{getegid, geteuid};

use crate::{Error, GuestSpec, Result, Share, SharePoint, Supervised, User};

/// A running daemon.
#[derive(Debug)]
pub(crate) struct Daemon {
    pub(crate) process: Supervised,
    pub(crate) point: SharePoint,
    /// Its metrics socket, if the share has a window.
    pub(crate) metrics: Option<PathBuf>,
    log: PathBuf,
    host: PathBuf,
}

/// Checks that the daemon exists.
///
/// # Errors
///
/// Returns an error that says how to get it otherwise.
pub(crate) fn check(program: &Path) -> Result<()> {
    if program.is_file() {
        return Ok(());
    }
    Err(Error::Missing {
        what: "the daemon",
        path: program.to_owned(),
        advice: "install it with `cargo install --path crates/daemon`, build it with `cargo build -p transom-daemon`, \
                 or name another daemon with --daemon"
            .into(),
    })
}

impl Daemon {
    /// Starts the daemon of `spec` for `share` under `tag`, with its socket and its log in `dir`, and the arguments
    /// that the VMM needs.
    ///
    /// # Errors
    ///
    /// Returns an error if the program is missing or the socket cannot be created.
    pub(crate) fn start(spec: &GuestSpec, share: &Share, tag: &str, dir: &Path, vmm_args: &[OsString]) -> Result<Self> {
        let (program, user) = (&spec.daemon, spec.user);
        check(program)?;
        if share.layer.is_some() && sandbox() == "none" {
            return Err(Error::Usage(format!(
                "share {:?}: overlay needs user namespaces, which this machine does not give to ordinary users: see \
                 sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone and \
                 kernel.apparmor_restrict_unprivileged_userns, or run it as root",
                share.host
            )));
        }
        let socket = dir.join(format!("{tag}.sock"));
        let listener = listen(&socket)?;
        let log = dir.join(format!("{tag}.log"));
        let output = File::create(&log).map_err(Error::io(format!("cannot create {log:?}")))?;

        let mut command = Command::new(program);
        command.arg(format!("--fd={}", listener.as_raw_fd()));
        command.arg("--shared-dir").arg(&share.host);
        command.arg("--sandbox").arg(sandbox());
        if !geteuid().is_root() {
            // Maps the guest's user, which is root by default, to this one: it owns the user's files, and the user owns
            // what it creates.
            let User { uid, gid } = user.unwrap_or(User { uid: 0, gid: 0 });
            command.arg(format!("--translate-uid=map:{uid}:{}:1", geteuid().as_raw()));
            command.arg(format!("--translate-gid=map:{gid}:{}:1", getegid().as_raw()));
        }
        let mut inherited = vec![listener];
        if let Some(layer) = &share.layer {
            command.arg("--overlay").arg(&layer.path);
            inherited.push(layer.held.try_clone().map_err(Error::io("cannot duplicate a descriptor"))?);
        }
        if share.is_read_only {
            command.arg("--readonly");
        }
        if let Some(cache) = share.cache {
            command.args(["--cache", cache.as_str()]);
        }
        let metrics = share.dax.is_some().then(|| dir.join(format!("{tag}.metrics")));
        if let (Some(dax), Some(metrics)) = (share.dax, &metrics) {
            command.arg(format!("--dax-window={}", dax.window_len));
            command.arg("--metrics-socket").arg(metrics);
        }
        // A device with regions gets its tag from the daemon.
        let has_regions = share.dax.is_some() || share.version_table.is_some();
        if has_regions && vmm_args.is_empty() {
            command.args(["--tag", tag]);
        }
        command.args(vmm_args).args(&share.daemon_args);
        let both = output.try_clone().map_err(Error::io(format!("cannot create {log:?}")))?;
        command.stdin(Stdio::null()).stdout(both).stderr(output);
        let process = Supervised::spawn(command, inherited)?;
        let point = SharePoint {
            tag: tag.to_owned(),
            socket,
            has_window: share.dax.is_some(),
            version_table: share.version_table.clone(),
        };
        Ok(Self { process, point, metrics, log, host: share.host.clone() })
    }

    /// Returns an error if the daemon exited with a failure.
    pub(crate) fn failed(&mut self) -> Option<Error> {
        self.process.ended().filter(|status| !status.success()).map(|_| self.died())
    }

    /// Returns the error for a daemon that exited too early.
    pub(crate) fn died(&mut self) -> Error {
        Error::Died {
            what: format!("the daemon of {:?}", self.host),
            status: self.process.ended().map_or_else(|| "still running".into(), |status| status.to_string()),
            output: fs::read_to_string(&self.log).unwrap_or_default(),
        }
    }
}

/// Returns the daemon's sandbox: namespaces, which an unprivileged user needs a user namespace for.
fn sandbox() -> &'static str {
    if geteuid().is_root() || user_namespaces_work() { "namespace" } else { "none" }
}

/// Returns whether the kernel's settings allow this user to create a user namespace.
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
        "cannot listen at {socket:?} ({} bytes; the limit is 107)",
        socket.as_os_str().len()
    )))?;
    Ok(listener.into())
}
