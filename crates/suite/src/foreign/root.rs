//! The packages, unpacked as a root directory, and programs run in it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use anyhow::Context as _;
use transom_vm::packages::{Cache, Closure, Freshness, OnStderr, Packages, Request};

use crate::interrupt;

/// What is fetched, with everything that it depends on.
const PACKAGES: [&str; 8] =
    ["coreutils", "dash", "dbench", "fio", "postgresql-15", "sqlite3", "stress-ng", "util-linux"];

/// Users of the root directory: PostgreSQL refuses to run as root and looks its user's name up.
const PASSWD: &str = "root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n";
const GROUP: &str = "root:x:0:\nnogroup:x:65534:\n";

/// Where a program finds the directory under test.
pub(super) const SHARE: &str = "/share";

/// Makes `$2` the directory /share of the root `$1` in a mount namespace of its own, and runs the rest there. Both
/// streams of what is run are one, in the order of writing.
const ENTER: &str = "set -e
exec 2>&1
root=$1 share=$2
shift 2
mount --make-rprivate /
mount --bind \"$share\" \"$root/share\"
mount --rbind /dev \"$root/dev\"
mount -t proc proc \"$root/proc\"
mount -t tmpfs -o mode=1777 tmpfs \"$root/tmp\"
exec chroot \"$root\" /usr/bin/env -i PATH=/usr/lib/postgresql/15/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C \"$@\"";

/// A root directory with the programs.
pub(super) struct Root(PathBuf);

impl Root {
    /// Fetches the packages of this machine's release unless the cache has them.
    ///
    /// # Errors
    /// The mirror has no such packages, or cannot be reached.
    pub(super) fn fetch() -> anyhow::Result<Self> {
        let (cache, report) = (Cache::locate()?, OnStderr::default());
        let suite = Packages::own_suite()?;
        let request = Request {
            suite: &suite,
            packages: &PACKAGES,
            closure: Closure::WithDependencies,
            freshness: Freshness::Cached,
        };
        let root = Packages::new(&cache, &report).fetch(&request)?.root();
        for dir in ["share", "dev", "proc", "tmp", "etc"] {
            fs::create_dir_all(root.join(dir)).with_context(|| format!("making {dir} in {}", root.display()))?;
        }
        for (name, text) in [("etc/passwd", PASSWD), ("etc/group", GROUP)] {
            let path = root.join(name);
            // A program of another scenario may be reading it.
            if fs::read_to_string(&path).ok().as_deref() != Some(text) {
                fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
            }
        }
        Ok(Self(root))
    }

    /// A command that runs `words` in this root with `share` at [`SHARE`]. Its processes end with it.
    pub(super) fn command(&self, share: &Path, words: &[&str]) -> Command {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--pid", "--fork", "--kill-child", "sh", "-c", ENTER, "sh"]);
        command.arg(&self.0).arg(share).args(words).stdin(Stdio::null());
        command
    }

    /// Runs `words` as [`Self::command`] does and returns what was printed.
    ///
    /// # Errors
    /// The command cannot be started, or there was a signal.
    pub(super) fn run(&self, share: &Path, words: &[&str]) -> anyhow::Result<Output> {
        interrupt::run(&mut self.command(share, words))
    }
}
