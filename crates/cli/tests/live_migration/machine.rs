//! Machines: the first is a run of the library, and further ones are its twins with other sockets.

use std::{
    ffi::{OsStr, OsString},
    fs, mem,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use transom_vm::{GuestSpec, Root, RunOutcome, Share};

use crate::{
    STEP_MAX, memory,
    needs::Needs,
    qmp::{self, Qmp},
    wait_for,
};

/// A migration that has not ended by then may stop the guest for longer.
const HURRY_AFTER: Duration = Duration::from_secs(30);

/// The first machine, on a thread of its own.
pub(crate) struct First {
    /// `None` if it has ended.
    run: Option<JoinHandle<transom_vm::Result<RunOutcome>>>,
    qmp: PathBuf,
    pid: PathBuf,
}

/// A machine that can be moved.
pub(crate) struct Machine {
    pub(crate) qmp: Qmp,
    /// Its command line, and its variables.
    words: Vec<OsString>,
    variables: Vec<(OsString, OsString)>,
    /// The number of QEMU's process.
    pid: u32,
    process: Process,
}

enum Process {
    Run(JoinHandle<transom_vm::Result<RunOutcome>>),
    Child(Child),
}

impl First {
    pub(crate) fn start(
        needs: &Needs,
        daemon: &Path,
        arguments: &[&str],
        share: &Path,
        dir: &Path,
        command: &[&str],
    ) -> Self {
        let (qmp, pid) = (dir.join("qmp0.sock"), dir.join("qemu0.pid"));
        let listening = ["-qmp".into(), qmp::listening(&qmp), "-pidfile".into(), pid.clone().into()];
        let vmm = needs.qemu().with_arguments(listening);
        let share = Share {
            host: share.to_owned(),
            guest: "/share".into(),
            daemon_args: arguments.iter().map(OsString::from).collect(),
            ..Share::default()
        };
        let spec = GuestSpec {
            kernel: needs.kernel.clone(),
            agent: env!("CARGO_BIN_EXE_transom").into(),
            events: None,
            daemon: daemon.to_owned(),
            busybox: Some(needs.busybox.clone()),
            root: Root::Minimal,
            shares: vec![share],
            command: command.iter().map(OsString::from).collect(),
            env: Vec::new(),
            memory_mib: 512,
            cpus: 1,
            scratch: None,
            stdio: transom_vm::Stdio::default(),
            timeout: Some(4 * STEP_MAX),
            console: None,
            snapshots: None,
            directory: None,
            user: None,
            network: transom_vm::network::Network::Off,
            is_foreground: false,
        };
        Self { run: Some(thread::spawn(move || transom_vm::run(&spec, &vmm))), qmp, pid }
    }

    /// Fails if the run has ended.
    #[track_caller]
    pub(crate) fn assert_runs(&mut self) {
        if let Some(run) = self.run.take_if(|run| run.is_finished()) {
            panic!("the run has ended before the migration: {:?}", run.join());
        }
    }

    /// Returns the machine, once its guest runs. What the run removes at its end is kept in `dir` for its twins.
    pub(crate) fn machine(self, dir: &Path) -> Machine {
        let pid = fs::read_to_string(&self.pid).unwrap().trim().parse().unwrap();
        let process = PathBuf::from(format!("/proc/{pid}"));
        let strings = |name: &str| -> Vec<OsString> {
            let all = fs::read(process.join(name)).unwrap();
            let strings = all.split(|&byte| byte == 0).filter(|string| !string.is_empty());
            strings.map(|string| OsStr::from_bytes(string).to_owned()).collect()
        };
        let variables = strings("environ").into_iter().filter_map(|variable| {
            let at = variable.as_bytes().iter().position(|&byte| byte == b'=')?;
            let (name, value) = variable.as_bytes().split_at(at);
            Some((OsStr::from_bytes(name).to_owned(), OsStr::from_bytes(&value[1..]).to_owned()))
        });
        let mut words = strings("cmdline");
        let initramfs = 1 + words.iter().position(|word| word == "-initrd").unwrap();
        let kept = dir.join("initramfs");
        fs::copy(&words[initramfs], &kept).unwrap();
        words[initramfs] = kept.into();
        let run = self.run.expect("it has not ended");
        let (qmp, variables) = (Qmp::connect(&self.qmp), variables.collect());
        Machine { qmp, words, variables, pid, process: Process::Run(run) }
    }
}

impl Machine {
    /// Starts a machine like this one, with the daemon at `socket`, which waits for a state. Its guest stands until
    /// [`Machine::go_on`].
    pub(crate) fn twin(&self, socket: &Path, dir: &Path, number: usize) -> Self {
        let qmp = dir.join(format!("qmp{number}.sock"));
        let mut words: Vec<OsString> = Vec::with_capacity(self.words.len() + 2);
        for word in &self.words {
            let text = word.to_string_lossy();
            let before = words.last().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
            words.push(match (before.as_str(), text.strip_prefix("socket,id=")) {
                ("-chardev", Some(rest)) if rest.starts_with("fs0,") => {
                    format!("socket,id=fs0,path={}", socket.display()).into()
                }
                // Nobody listens to the channels of the guest's first process any more.
                ("-chardev", Some(rest)) => format!("null,id={}", rest.split(',').next().unwrap()).into(),
                ("-qmp", _) => qmp::listening(&qmp),
                ("-pidfile", _) => dir.join(format!("qemu{number}.pid")).into(),
                ("-serial", _) => "null".into(),
                _ => word.clone(),
            });
        }
        if !words.iter().any(|word| word == "-incoming") {
            words.extend(["-incoming", "defer", "-S"].map(OsString::from));
        }
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).env_clear().envs(self.variables.clone()).stdin(Stdio::null());
        let child = command.spawn().unwrap();
        let (pid, variables) = (child.id(), self.variables.clone());
        Self { qmp: Qmp::connect(&qmp), words, variables, pid, process: Process::Child(child) }
    }

    /// Moves the guest of `from` here, over a socket at `path`, and checks that its memory is the same.
    #[track_caller]
    pub(crate) fn take_over(&mut self, from: &mut Self, path: &Path) {
        let uri = format!("unix:{}", path.display());
        self.qmp.ask("migrate-incoming", json!({ "uri": uri }));
        from.migrate(&uri);
        self.wait_for_status("paused");
        memory::assert_equal(from.pid, self.pid);
        self.go_on();
    }

    /// Saves the guest to the file `path`. It does not run any more.
    #[track_caller]
    pub(crate) fn save(&mut self, path: &Path) {
        self.migrate(&format!("file:{}", path.display()));
    }

    /// Goes on with the guest in the file `path`.
    #[track_caller]
    pub(crate) fn restore(&mut self, path: &Path) {
        self.qmp.ask("migrate-incoming", json!({ "uri": format!("file:{}", path.display()) }));
        self.wait_for_status("paused");
        self.go_on();
    }

    /// Migrates the guest to `uri` while it runs, in at least two rounds: what it, or the daemon, has written in the
    /// first goes in the others.
    #[track_caller]
    fn migrate(&mut self, uri: &str) {
        // So slow that not all of it goes in the time for which the guest may stand.
        self.qmp.ask("migrate-set-parameters", json!({ "downtime-limit": 300, "max-bandwidth": 48 << 20 }));
        self.qmp.ask("migrate", json!({ "uri": uri }));
        let begun = Instant::now();
        let mut is_hurried = false;
        let answer = wait_for("the migration", || {
            let answer = self.qmp.ask("query-migrate", json!({}));
            let status = answer["status"].as_str().unwrap_or_default();
            assert!(!matches!(status, "failed" | "cancelled"), "{answer}");
            // A machine that is too busy would never come to the end.
            if begun.elapsed() > HURRY_AFTER && !mem::replace(&mut is_hurried, true) {
                self.qmp
                    .ask("migrate-set-parameters", json!({ "downtime-limit": 60_000, "max-bandwidth": 1_u64 << 33 }));
            }
            (status == "completed").then_some(answer)
        });
        let rounds = answer["ram"]["dirty-sync-count"].as_u64().unwrap();
        println!(
            "moved in {} ms and {rounds} rounds; the guest stood for {} ms{}",
            answer["total-time"],
            answer["downtime"],
            if is_hurried { ", of more than the usual 300" } else { "" }
        );
        assert!(rounds > 1);
    }

    /// Waits until the migration has a status, and returns what QEMU says of it.
    #[track_caller]
    pub(crate) fn wait_for_migration(&mut self, status: &str, others: &[&str]) -> Value {
        wait_for("the migration", || {
            let answer = self.qmp.ask("query-migrate", json!({}));
            let found = answer["status"].as_str().unwrap_or_default().to_owned();
            assert!(!others.contains(&found.as_str()), "{answer}");
            (found == status).then_some(answer)
        })
    }

    /// Lets a guest that stands go on.
    #[track_caller]
    pub(crate) fn go_on(&mut self) {
        self.qmp.ask("cont", json!({}));
        self.wait_for_status("running");
    }

    #[track_caller]
    pub(crate) fn wait_for_status(&mut self, status: &str) {
        wait_for(status, || (self.qmp.ask("query-status", json!({}))["status"] == status).then_some(()));
    }

    /// Fails if the machine has ended.
    #[track_caller]
    pub(crate) fn assert_runs(&mut self) {
        if let Process::Child(child) = &mut self.process {
            assert_eq!(child.try_wait().unwrap(), None, "QEMU has ended");
        }
    }

    /// Ends the machine.
    pub(crate) fn end(mut self) {
        self.qmp.quit();
        match &mut self.process {
            Process::Run(run) => wait_for("the first machine's end", || run.is_finished().then_some(())),
            Process::Child(child) => wait_for("QEMU's end", || child.try_wait().unwrap().map(drop)),
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if let Process::Child(child) = &mut self.process {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
