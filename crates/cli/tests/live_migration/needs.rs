//! What the tests need from elsewhere, and the daemons that they start.

use std::{
    fmt::Display,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use transom_vm::{
    Accelerator, Kernel, Qemu,
    packages::{Cache, OnStderr, Packages},
    peer,
    tools::{Program, Tools},
};

use crate::wait_for;

/// Which QEMU guests run under.
#[derive(Clone, Copy)]
pub(crate) enum Emulator {
    /// The version that has windows, 11.1.
    New,
    /// That of a release of the distribution.
    Of(&'static str),
}

/// What a test needs from elsewhere.
pub(crate) struct Needs {
    test: &'static str,
    cache: PathBuf,
    qemu: Program,
    pub(crate) kernel: Kernel,
    pub(crate) busybox: PathBuf,
    pub(crate) transomd: PathBuf,
}

impl Needs {
    /// Returns `None` and prints the reason if something is not available.
    pub(crate) fn find(test: &'static str, emulator: Emulator) -> Option<Self> {
        let skipped = |reason: &dyn Display| skip(test, reason);
        if !rustix::process::geteuid().is_root() {
            skipped(&"the daemons at both sides need the same rights; run it as root");
            return None;
        }
        let transomd = std::env::var_os("TRANSOM_DAEMON").map_or_else(|| built("transomd"), PathBuf::from);
        if !transomd.is_file() {
            skipped(&format!("no daemon {transomd:?}; build transomd"));
            return None;
        }
        let cache = Cache::locate().inspect_err(|error| skipped(error)).ok()?;
        let report = OnStderr::default();
        let tools = Tools::new(&cache, &report);
        let qemu = match emulator {
            Emulator::New => tools.qemu_with_window(None),
            Emulator::Of(suite) => tools.qemu_of_suite(suite),
        };
        let qemu = qemu.inspect_err(|error| skipped(error)).ok()?;
        let kernel = tools.kernel(None).inspect_err(|error| skipped(error)).ok()?;
        let busybox = tools.busybox().inspect_err(|error| skipped(error)).ok()?;
        Some(Self { test, cache: tools.cache().to_owned(), qemu, kernel, busybox, transomd })
    }

    /// Returns QEMU as the library starts it.
    pub(crate) fn qemu(&self) -> Qemu {
        let accelerator = Accelerator::best(&self.qemu, &self.kernel, &self.cache);
        Qemu::new(self.qemu.clone(), accelerator, &self.cache)
    }

    pub(crate) fn virtiofsd(&self) -> Option<PathBuf> {
        let (cache, report) = (Cache::at(&self.cache), OnStderr::default());
        peer::virtiofsd(&Packages::new(&cache, &report), peer::Build::Packaged)
            .inspect_err(|error| skip(self.test, error))
            .ok()
    }

    /// Returns the program of the list of file-system cases.
    pub(crate) fn cases(&self) -> Option<PathBuf> {
        let cases = built("transom-cases");
        if !cases.is_file() {
            skip(self.test, &format!("no {cases:?}; build transom-conformance"));
            return None;
        }
        Some(cases)
    }

    /// Returns the program of pjdfstest, which `cases` builds.
    pub(crate) fn pjdfstest(&self, cases: &Path) -> Option<PathBuf> {
        let output = Command::new(cases).args(["pjdfstest", "--install", "--cache"]).arg(&self.cache).output().unwrap();
        if !output.status.success() {
            skip(self.test, &String::from_utf8_lossy(&output.stderr));
            return None;
        }
        Some(String::from_utf8(output.stdout).unwrap().trim().into())
    }
}

/// Returns where the program `name` is, if it was built with this test.
fn built(name: &str) -> PathBuf {
    Path::new(env!("CARGO_BIN_EXE_transom")).with_file_name(name)
}

fn skip(test: &str, reason: &dyn Display) {
    println!("SKIPPED: {test}: {reason}");
}

/// A daemon that is started by the test. Dropping it kills it.
pub(crate) struct Daemon {
    child: Child,
    pub(crate) socket: PathBuf,
}

impl Daemon {
    pub(crate) fn start(program: &Path, share: &Path, arguments: &[&str], socket: PathBuf) -> Self {
        let mut command = Command::new(program);
        command.arg("--socket-path").arg(&socket).arg("--shared-dir").arg(share).args(arguments);
        let child = command.stdin(Stdio::null()).spawn().unwrap();
        let mut daemon = Self { child, socket };
        wait_for(&format!("the socket of {program:?}"), || {
            assert_eq!(daemon.child.try_wait().unwrap(), None, "{program:?} has ended");
            daemon.socket.exists().then_some(())
        });
        daemon
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
