//! A mount on this machine as the guest: the kernel's own FUSE client, over virtqueues.

use std::{
    ffi::OsString,
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::Context as _;
use transom_mount::{Mount, Options};
use transom_user::{daemon::Program, share::Share};
use transom_vm::{packages::Cache, peer};

use crate::{
    interrupt::{self, Mounting},
    places::Places,
    scenario::{Daemon, Guest, Scenario},
};

/// An option of the programs that run in a guest: here the users are this machine's own.
const ADD_USERS: &str = "--add-users";

/// What mounts.
pub(crate) struct Mounted {
    program: Program,
    options: Options,
}

impl Mounted {
    /// Finds what `scenario` needs. Errors: nothing can be mounted here, or the daemon is not there.
    pub(crate) fn prepare(scenario: &Scenario, places: &Places<'_>) -> anyhow::Result<Self> {
        anyhow::ensure!(Path::new("/dev/fuse").exists(), "there is no /dev/fuse");
        anyhow::ensure!(rustix::process::geteuid().is_root(), "mount(2) takes root");
        let path = match scenario.daemon {
            Daemon::Transomd => places.executable("transomd")?,
            Daemon::Virtiofsd => peer::existing(&Cache::locate()?, peer::Build::Packaged)
                .context("virtiofsd 1.14 is not in the cache")?,
        };
        let (passthrough, coherent) = (scenario.guest == Guest::Passthrough, scenario.guest == Guest::Coherent);
        let options = Options { passthrough, coherent, ..Options::default() };
        let mut args = options.daemon_args();
        if coherent {
            args.extend(["--coherence-group".into(), places.fresh("group")?.into()]);
        }
        args.extend(scenario.daemon_args().into_iter().map(Into::into));
        Ok(Self { program: Program { args, ..Program::new(path) }, options })
    }

    /// The daemon of each mount.
    pub(crate) fn program(&self) -> &Program {
        &self.program
    }

    /// Runs `command` with `share` mounted where it says `/share`, and `tools` where it says `/tools`; returns what it
    /// wrote.
    ///
    /// In a process of its own: threads of this one that do not share its descriptors would keep the mount open.
    pub(crate) fn run(&self, share: &Path, tools: &Path, command: &[&str]) -> anyhow::Result<Vec<u8>> {
        self.at(share, |at| {
            let mut words = command.iter().filter(|word| **word != ADD_USERS).map(|word| translated(word, at, tools));
            let program = words.next().context("a command has a program")?;
            Ok(interrupt::run(Command::new(program).args(words).stdin(Stdio::null()))?.stdout)
        })
    }

    /// Mounts `share`, calls `work` with the place, and unmounts.
    ///
    /// `work` leaves the use of the mount to processes of their own, as [`Self::run`] does.
    pub(crate) fn at<T>(&self, share: &Path, work: impl FnOnce(&Path) -> anyhow::Result<T>) -> anyhow::Result<T> {
        let _mounting = Mounting::begin()?;
        let at = tempfile::tempdir().context("a directory to mount at")?;
        let source = Share::builder().shared_dir(share).daemon(self.program.clone());
        let mut mount = Mount::start(source, at.path(), self.options.clone())?;
        mount.passthrough().context("no passthrough")?;
        let result = work(at.path());
        // Its threads may not have noticed yet that somebody else has ended it.
        let early = if is_served(at.path()) { mount.cause() } else { Some(mount.wait()) };
        let unmounted = mount.unmount();
        if let Some(end) = early {
            // Whatever else has failed follows from it.
            let failed = result.err().map(|error| format!("; then the scenario failed: {error:#}"));
            anyhow::bail!("the mount ended before its scenario: {end}{}", failed.unwrap_or_default());
        }
        unmounted.context("unmounting")?;
        result
    }
}

/// Whether a file system is mounted at `at`, and answers.
fn is_served(at: &Path) -> bool {
    let device = |path: &Path| fs::metadata(path).map(|metadata| metadata.dev()).ok();
    let above = at.parent().and_then(device);
    device(at).is_some_and(|device| Some(device) != above)
}

/// A word of a command as it is on this machine.
fn translated(word: &str, share: &Path, tools: &Path) -> OsString {
    let beneath = |dir: &Path, rest: &str| PathBuf::from(format!("{}{rest}", dir.display())).into_os_string();
    match (word.strip_prefix("/share"), word.strip_prefix("/tools")) {
        (Some(rest), _) => beneath(share, rest),
        (_, Some(rest)) => beneath(tools, rest),
        _ => word.into(),
    }
}

#[cfg(test)]
mod tests {
    use rustix::mount::{UnmountFlags, unmount};

    use super::*;

    #[test]
    fn a_mount_that_somebody_else_ends_says_so_before_what_follows_from_it() {
        // The executables of this build are in the directory above that of test programs.
        let this = std::env::current_exe().unwrap();
        let transomd = this.parent().unwrap().parent().unwrap().join("transomd");
        if !transomd.exists() || !Path::new("/dev/fuse").exists() || !rustix::process::geteuid().is_root() {
            println!("SKIPPED: it takes root, /dev/fuse and the executables");
            return;
        }
        let options = Options::default();
        let program = Program { args: options.daemon_args(), ..Program::new(transomd) };
        let mounted = Mounted { program, options };
        let share = tempfile::tempdir().unwrap();
        let error = mounted
            .at::<()>(share.path(), |at| {
                // It ends the connection also if the mount is busy.
                unmount(at, UnmountFlags::FORCE)?;
                fs::write(at.join("file"), "").context("writing a file")?;
                anyhow::bail!("a case failed")
            })
            .unwrap_err();
        let text = format!("{error:#}");
        assert!(text.starts_with("the mount ended before its scenario: "), "{text}");
        assert!(text.contains("; then the scenario failed: a case failed"), "{text}");
    }
}
