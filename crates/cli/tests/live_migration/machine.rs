//! Machines: the first is a run of the library, and further ones are its twins with other sockets.

use std::{
    ffi::{OsStr, OsString},
    fs,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread::{self, JoinHandle},
};

use serde_json::json;
use transom_vm::{GuestSpec, Root, RunOutcome, Share};

use crate::{Needs, STEP_MAX, qemu, qmp::Qmp, wait_for};

/// The first machine, on a thread of its own.
pub(crate) struct First {
    run: JoinHandle<transom_vm::Result<RunOutcome>>,
    qmp: PathBuf,
    pid: PathBuf,
}

/// A machine that can be moved.
pub(crate) struct Machine {
    qmp: Qmp,
    /// Its command line, and its variables.
    words: Vec<OsString>,
    variables: Vec<(OsString, OsString)>,
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
        let vmm = qemu(needs, &qmp, &pid);
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
            memory_mib: 192,
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
        Self { run: thread::spawn(move || transom_vm::run(&spec, &vmm)), qmp, pid }
    }

    /// Fails if the run has ended.
    #[track_caller]
    pub(crate) fn assert_runs(&self) {
        assert!(!self.run.is_finished(), "the run has ended before the migration");
    }

    /// Returns the machine, once its guest runs. What the run removes at its end is kept in `dir` for its twins.
    pub(crate) fn machine(self, dir: &Path) -> Machine {
        let pid = fs::read_to_string(&self.pid).unwrap();
        let process = Path::new("/proc").join(pid.trim());
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
        Machine { qmp: Qmp::connect(&self.qmp), words, variables: variables.collect(), process: Process::Run(self.run) }
    }
}

impl Machine {
    /// Starts a machine like this one, with the daemon at `socket`, which waits for a state.
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
                ("-qmp", _) => crate::qmp::listening(&qmp),
                ("-pidfile", _) => dir.join(format!("qemu{number}.pid")).into(),
                ("-serial", _) => "null".into(),
                _ => word.clone(),
            });
        }
        if !words.iter().any(|word| word == "-incoming") {
            words.extend(["-incoming".into(), "defer".into()]);
        }
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).env_clear().envs(self.variables.clone()).stdin(Stdio::null());
        let process = Process::Child(command.spawn().unwrap());
        Self { qmp: Qmp::connect(&qmp), words, variables: self.variables.clone(), process }
    }

    /// Moves the guest of `from` here, over a socket at `path`.
    #[track_caller]
    pub(crate) fn take_over(&mut self, from: &mut Self, path: &Path) {
        let uri = format!("unix:{}", path.display());
        self.qmp.ask("migrate-incoming", json!({ "uri": uri }));
        // On a busy machine, more than the usual 300 ms may be left for the end.
        from.qmp.ask("migrate-set-parameters", json!({ "downtime-limit": 10_000, "max-bandwidth": 1_u64 << 33 }));
        from.qmp.ask("migrate", json!({ "uri": uri }));
        wait_for("the migration", || {
            let answer = from.qmp.ask("query-migrate", json!({}));
            let status = answer["status"].as_str().unwrap_or_default().to_owned();
            assert!(!matches!(status.as_str(), "failed" | "cancelled"), "{answer}");
            (status == "completed").then_some(())
        });
        wait_for("the guest to run at its new place", || {
            (self.qmp.ask("query-status", json!({}))["status"] == "running").then_some(())
        });
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
