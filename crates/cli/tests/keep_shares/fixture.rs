//! A machine with directories to share.

use std::{
    fs,
    path::Path,
    process::{Command, Output, Stdio},
};

use rustix::process::Pid;
use serde_json::Value;
use tempfile::TempDir;

use crate::within;

/// A directory with `first`, `second` and `third` to share, in which the machine `m` is started.
pub(crate) struct Fixture {
    folder: TempDir,
}

impl Fixture {
    pub(crate) fn start(options: &[&str]) -> Self {
        let fixture = Self { folder: tempfile::tempdir_in("/var/tmp").unwrap() };
        for name in ["first", "second", "third"] {
            fs::create_dir_all(fixture.path(name).join("sub")).unwrap();
            fs::write(fixture.path(name).join("name"), format!("{name}\n")).unwrap();
        }
        let started = fixture.transom(&[&["run", "--keep", "m", "--no-events", "--share", "first"], options].concat());
        assert!(started.status.success(), "{started:?}");
        fixture
    }

    pub(crate) fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn transom(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_transom"));
        command.args(arguments).current_dir(self.folder.path()).env("XDG_RUNTIME_DIR", self.folder.path());
        if std::env::var_os("TRANSOM_CACHE").is_none() {
            command.env("TRANSOM_CACHE", Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/cache"));
        }
        within::output(command.stdin(Stdio::null()))
    }

    #[track_caller]
    pub(crate) fn succeeds(&self, arguments: &[&str]) -> String {
        let output = self.transom(arguments);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    #[track_caller]
    pub(crate) fn is_refused(&self, arguments: &[&str], text: &str) {
        let output = self.transom(arguments);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && error.contains(text), "{error}");
    }

    #[track_caller]
    pub(crate) fn sh(&self, script: &str) -> String {
        self.succeeds(&["exec", "m", "--", "sh", "-c", script])
    }

    pub(crate) fn guests(&self) -> Vec<String> {
        let machines: Value = serde_json::from_str(&self.succeeds(&["ps", "--json"])).unwrap();
        let shares = machines[0]["shares"].as_array().unwrap().iter();
        shares.map(|share| share["guest"].as_str().unwrap().to_owned()).collect()
    }

    /// Returns the process that keeps the machine.
    pub(crate) fn keeper(&self) -> u32 {
        let machines: Value = serde_json::from_str(&self.succeeds(&["ps", "--json"])).unwrap();
        machines[0]["pid"].as_u64().unwrap().try_into().unwrap()
    }

    /// Returns the daemons of the machine's shares by tag, as processes whose parent is the keeper. They have the path
    /// of their log, which has the tag in its name.
    pub(crate) fn daemon(&self, tag: &str) -> Option<Pid> {
        let keeper = self.keeper();
        children(keeper).into_iter().find(|pid| {
            let log = fs::read_link(format!("/proc/{}/fd/2", pid.as_raw_nonzero())).unwrap_or_default();
            log.file_name().is_some_and(|name| name == format!("{tag}.log").as_str())
        })
    }

    /// Returns what the machine has on this host: descriptors and children of its keeper, zombies among them, and
    /// files of the run.
    pub(crate) fn counts(&self) -> [usize; 3] {
        let keeper = self.keeper();
        let fds = || fs::read_dir(format!("/proc/{keeper}/fd")).unwrap().flatten();
        let run = fs::read_dir(self.folder.path()).unwrap().flatten().map(|entry| entry.path());
        let run = run.filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with("transom-run-"));
        let files = run.map(|dir| fs::read_dir(dir).unwrap().count()).sum();
        [fds().count(), children(keeper).len(), files]
    }
}

pub(crate) fn children(of: u32) -> Vec<Pid> {
    let tasks = fs::read_dir(format!("/proc/{of}/task")).unwrap().flatten();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    let lists: Vec<_> = lists.collect();
    let numbers = lists.iter().flat_map(|list| list.split_whitespace());
    numbers.map(|number| Pid::from_raw(number.parse().unwrap()).unwrap()).collect()
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.transom(&["stop", "--all", "--force"]);
    }
}
