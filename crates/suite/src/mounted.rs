//! A mount on this machine as the guest: the kernel's own FUSE client, over virtqueues.

use std::{
    ffi::OsString,
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
            Daemon::Virtiofsd => peer::existing(&Cache::locate()?).context("virtiofsd 1.14 is not in the cache")?,
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
        let early = mount.cause();
        let unmounted = mount.unmount();
        if let Some(end) = early {
            // Whatever else has failed follows from it.
            anyhow::bail!("the mount ended before its scenario: {end}");
        }
        unmounted.context("unmounting")?;
        result
    }
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
