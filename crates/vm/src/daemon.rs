//! The daemons of a run, one for each share.
//!
//! A [`Daemon`] inherits a socket that is already listening. Connections wait in its queue, so there is no need to wait
//! until the daemon is ready, and errors of the path are reported here.

use std::{
    ffi::OsString,
    fs::{self, File},
    io::{Read as _, Seek as _},
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::net::UnixListener,
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use rustix::{
    fs::{MemfdFlags, memfd_create},
    process::{getegid, geteuid},
    thread::{CapabilitySet, capabilities},
};

use crate::{Directory, Error, GuestSpec, Layer, MountedBy, Result, Share, SharePoint, Supervised, User};

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
        Self::of_program(&spec.daemon, spec.user, share, tag, dir, vmm_args)
    }

    fn of_program(
        program: &Path,
        user: Option<User>,
        share: &Share,
        tag: &str,
        dir: &Path,
        vmm_args: &[OsString],
    ) -> Result<Self> {
        check(program)?;
        let socket = dir.join(format!("{tag}.sock"));
        let listener = listen(&socket)?;
        let log = dir.join(format!("{tag}.log"));
        let output = File::create(&log).map_err(Error::io(format!("cannot create {log:?}")))?;

        let mut command = Command::new(program);
        command.arg(format!("--fd={}", listener.as_raw_fd()));
        add_share(&mut command, share, user);
        let mut inherited = vec![listener];
        if let Some(layer) = &share.layer {
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
        // A device with regions gets its tag from the daemon, and has one queue of requests.
        let has_regions = share.dax.is_some() || share.version_table.is_some();
        if has_regions && vmm_args.is_empty() {
            command.args(["--tag", tag, "--num-request-queues=1"]);
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

    /// Ends the daemon, if it has not ended, and removes its files from the directory of the run.
    pub(crate) fn remove(mut self) {
        self.process.kill();
        for file in [Some(&self.point.socket), Some(&self.log), self.metrics.as_ref()].into_iter().flatten() {
            let _ = fs::remove_file(file);
        }
    }

    /// As [`remove`](Self::remove), without waiting for the end: a daemon whose disk does not answer may take long.
    pub(crate) fn abandon(self) {
        self.process.send_kill();
        thread::spawn(move || self.remove());
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

/// Adds what is shared, and with which rights.
fn add_share(command: &mut Command, share: &Share, user: Option<User>) {
    match &share.directory {
        None => command.arg("--shared-dir").arg(&share.host),
        // The working directory, unlike other descriptors, can be mounted in the daemon's mount namespace.
        Some(Directory(directory)) => {
            command.current_dir(format!("/proc/self/fd/{}", directory.as_raw_fd())).args(["--shared-dir", "."])
        }
    };
    command.arg("--sandbox").arg(sandbox());
    if !geteuid().is_root() {
        // Maps the guest's user, which is root by default, to this one: it owns the user's files, and the user owns
        // what it creates.
        let User { uid, gid } = user.unwrap_or(User { uid: 0, gid: 0 });
        command.arg(format!("--translate-uid=map:{uid}:{}:1", geteuid().as_raw()));
        command.arg(format!("--translate-gid=map:{gid}:{}:1", getegid().as_raw()));
    }
    if let Some(Layer { path, mounted_by: MountedBy::Daemon, .. }) = &share.layer {
        command.arg("--overlay").arg(path);
    }
}

/// Returns why this machine does not let `daemon`, which is transomd, mount the layer of `share`; `None` if it does.
/// Blocks until the daemon has tried.
///
/// # Errors
///
/// Returns an error if the daemon cannot serve the share wherever it runs.
pub fn overlay_obstacle(daemon: &Path, share: &Share) -> Result<Option<String>> {
    /// The daemon's exit status if the machine is the reason.
    const UNSUPPORTED: i32 = 3;
    /// Well above what a busy machine takes.
    const CHECK_MAX: Duration = Duration::from_secs(60);
    let why = match sandbox() {
        "namespace" => None,
        "chroot" => Some("root may not mount anything here (it has no CAP_SYS_ADMIN, as in most containers)"),
        _ => Some(
            "ordinary users get no user namespaces here (see sysctl user.max_user_namespaces, \
             kernel.unprivileged_userns_clone and kernel.apparmor_restrict_unprivileged_userns)",
        ),
    };
    if let Some(why) = why {
        return Ok(Some(why.into()));
    }
    let mut command = Command::new(daemon);
    add_share(&mut command, share, None);
    let unread = || format!("cannot read what {daemon:?} says");
    let mut log = File::from(memfd_create("check", MemfdFlags::CLOEXEC).map_err(Error::io(unread()))?);
    let output = log.try_clone().map_err(Error::io(unread()))?;
    command.args(["--check", "--log-level=error"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(output);
    let mut process = Supervised::spawn(command, Vec::new())?;
    let Some(status) = process.ended_within(CHECK_MAX) else {
        return Err(Error::Usage(format!(
            "share {:?}: {daemon:?} could not look at it within {} s: is its file system reachable?",
            share.host,
            CHECK_MAX.as_secs()
        )));
    };
    if status.success() {
        return Ok(None);
    }
    let mut said = Vec::new();
    log.rewind().and_then(|()| log.read_to_end(&mut said)).map_err(Error::io(unread()))?;
    let said = String::from_utf8_lossy(&said);
    let last = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
    // Without the time and the level.
    let why = last.split_once("ERROR ").map_or(last, |(_, why)| why).trim().to_owned();
    if status.code() == Some(UNSUPPORTED) {
        return Ok(Some(why));
    }
    Err(Error::Usage(format!("share {:?}: {why}", share.host)))
}

/// Returns the daemon's sandbox: namespaces, which an unprivileged user needs a user namespace for, and root a
/// capability that it lacks in most containers.
fn sandbox() -> &'static str {
    match geteuid().is_root() {
        true if has_sys_admin() => "namespace",
        true => "chroot",
        false if user_namespaces_work() => "namespace",
        false => "none",
    }
}

/// Returns whether this process has CAP_SYS_ADMIN.
fn has_sys_admin() -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_ADMIN))
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

#[cfg(test)]
mod tests {
    use std::{ffi::OsStr, os::unix::fs::PermissionsExt as _};

    use super::*;
    use crate::ShareArg;

    #[test]
    fn a_directory_that_was_opened_is_shared_whatever_is_at_its_path_later() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for (name, file) in [("work", "mine"), ("secret", "key")] {
            fs::create_dir(at(name)).unwrap();
            fs::write(at(name).join(file), "").unwrap();
        }
        let program = at("daemon");
        // It lists what it is to share, as the argument after --shared-dir says.
        let script = format!("#!/bin/sh\nls \"$3\" > {}\n", at("seen").display());
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).unwrap();

        let words = OsStr::new("work");
        let parsed = ShareArg { host: at("work"), ..ShareArg::parse(words).unwrap() };
        let share = parsed.open(|_| "/mnt/work".into()).unwrap();
        assert_eq!(share.host, fs::canonicalize(at("work")).unwrap());
        fs::rename(at("work"), at("moved")).unwrap();
        std::os::unix::fs::symlink(at("secret"), at("work")).unwrap();
        let mut daemon = Daemon::of_program(&program, None, &share, "tag", dir.path(), &[]).unwrap();
        daemon.process.wait().unwrap();
        assert_eq!(fs::read_to_string(at("seen")).unwrap(), "mine\n");
        // Nothing of it is left.
        let files = |kind: &str| at(&format!("tag.{kind}")).exists();
        assert!(files("sock") && files("log"));
        daemon.remove();
        assert!(!files("sock") && !files("log"));
    }
}
