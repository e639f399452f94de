//! The same without root: the daemon of an ordinary user observes single directories.

use std::{env, os::unix::process::CommandExt as _, path::Path, process::Command};

use rustix::{
    fs::{Uid, chown},
    process::geteuid,
};

use crate::Machine;

/// The cases that also have to hold if an ordinary user starts the daemon, which then observes single directories. This
/// program runs them again.
const WITHOUT_ROOT: [&str; 2] =
    ["events and caches are those of local changes, and", "guest and host have the same tree after many"];

/// Any user but root.
const ORDINARY_USER: u32 = 65534;

pub(crate) fn runs(_: &Machine, _: &Path) -> anyhow::Result<String> {
    if !geteuid().is_root() {
        println!("SKIPPED: all cases run as an ordinary user");
        return Ok(String::new());
    }
    for case in WITHOUT_ROOT {
        let folder = tempfile::tempdir()?;
        chown(folder.path(), Some(Uid::from_raw(ORDINARY_USER)), None)?;
        let output = Command::new(env::current_exe()?)
            .arg(case)
            .env("TMPDIR", folder.path())
            .env("HOME", folder.path())
            .uid(ORDINARY_USER)
            .gid(ORDINARY_USER)
            .output()?;
        let said = String::from_utf8_lossy(&output.stdout);
        if let Some(reason) = said.lines().find(|line| line.starts_with("SKIPPED")) {
            println!("{reason} (as an ordinary user)");
            return Ok(String::new());
        }
        let complaint = || format!("{said}{}", String::from_utf8_lossy(&output.stderr));
        anyhow::ensure!(output.status.success() && said.contains("1 passed"), "{}", complaint());
    }
    Ok(format!("({} cases) ", WITHOUT_ROOT.len()))
}
