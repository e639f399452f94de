//! A Linux guest under QEMU, of any version, works on while its daemon is replaced, and finds all as it was.
//!
//! Two cases run by default; the long ones are `cargo test -p transom-cli --test upgrade -- --ignored --nocapture`,
//! with `TRANSOM_UPGRADES` for another number of upgrades. [`load`] is what runs in the guest.

mod deaths;
mod load;

use std::{
    cell::RefCell,
    ffi::OsString,
    fmt::Display,
    fs::{self, File},
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    process::{Command, Output},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use rustix::fs::{FlockOperation, fcntl_lock};
use transom_vm::{
    Dax, DaxMode, GuestSpec, Kernel, Qemu, Root, RunOutcome, Share,
    packages::{Cache, OnStderr},
    tools::{Program, Tools},
};

/// Well above what any step takes on a busy machine, so that only one that hangs reaches it.
const STEP_MAX: Duration = Duration::from_secs(240);
/// Time between two upgrades under load.
const UPGRADE_EVERY: Duration = Duration::from_millis(200);

/// What a test needs from elsewhere.
struct Needs {
    cache: PathBuf,
    qemu: Program,
    kernel: Kernel,
    busybox: PathBuf,
    transomd: PathBuf,
}

/// Which QEMU a guest runs under.
#[derive(Clone, Copy)]
enum Emulator {
    /// The one of this machine's distribution.
    Usual,
    /// One that is new enough for a DAX window: 11.1.
    New,
}

impl Needs {
    /// Returns `None` and prints the reason if something is not available.
    fn find(test: &str, emulator: Emulator) -> Option<Self> {
        let skipped = |reason: &dyn Display| println!("SKIPPED: {test}: {reason}");
        let transomd = std::env::var_os("TRANSOM_DAEMON")
            .map_or_else(|| Path::new(env!("CARGO_BIN_EXE_transom")).with_file_name("transomd"), PathBuf::from);
        if !transomd.is_file() {
            skipped(&format!("no daemon {transomd:?}; build transomd"));
            return None;
        }
        let cache = Cache::locate().inspect_err(|error| skipped(error)).ok()?;
        let report = OnStderr::default();
        let tools = Tools::new(&cache, &report);
        let qemu = match emulator {
            Emulator::Usual => tools.qemu(None, true),
            Emulator::New => tools.qemu_with_window(None),
        };
        let qemu = qemu.inspect_err(|error| skipped(error)).ok()?;
        let kernel = tools.kernel(None).inspect_err(|error| skipped(error)).ok()?;
        let busybox = tools.busybox().inspect_err(|error| skipped(error)).ok()?;
        Some(Self { cache: tools.cache().to_owned(), qemu, kernel, busybox, transomd })
    }
}

/// A guest that runs the script.
struct Guest {
    /// `None` if it has ended.
    run: RefCell<Option<JoinHandle<transom_vm::Result<RunOutcome>>>>,
    directory: tempfile::TempDir,
    transomd: PathBuf,
    /// The daemon's.
    socket: PathBuf,
}

impl Guest {
    fn start(needs: &Needs, options: &[&str], timeout: Duration) -> Self {
        Self::start_with(needs, options, None, timeout)
    }

    fn start_with(needs: &Needs, options: &[&str], dax: Option<Dax>, timeout: Duration) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let share = directory.path().join("share");
        fs::create_dir(&share).unwrap();
        fs::copy(std::env::current_exe().unwrap(), share.join(load::PROGRAM)).unwrap();
        // Only root and this user can write it, as the supervisor wants; a checkout may be another user's.
        let transomd = directory.path().join("transomd");
        // By another process: a descriptor that writes to it could be inherited, and it would not be executed.
        assert!(Command::new("cp").args([&needs.transomd, &transomd]).status().unwrap().success());
        // A program in the window could not write what is in its own file: the daemon does not see the window.
        let command = match dax {
            None => load::COMMAND.into(),
            Some(_) => format!("cp /share/{} / && {}", load::PROGRAM, load::COMMAND.replace("/share", "/")),
        };
        let pid = directory.path().join("qemu.pid");
        let accelerator = transom_vm::Accelerator::best(&needs.qemu, &needs.kernel, &needs.cache);
        let arguments = ["-pidfile".into(), pid.clone().into()];
        let vmm = Qemu::new(needs.qemu.clone(), accelerator, &needs.cache).with_arguments(arguments);
        let share = Share {
            host: share,
            guest: "/share".into(),
            dax,
            daemon_args: ["--upgradable"].iter().chain(options).map(OsString::from).collect(),
            ..Share::default()
        };
        let spec = GuestSpec {
            kernel: needs.kernel.clone(),
            agent: env!("CARGO_BIN_EXE_transom").into(),
            events: None,
            daemon: transomd.clone(),
            busybox: Some(needs.busybox.clone()),
            root: Root::Minimal,
            shares: vec![share],
            command: ["sh", "-c", &command].map(OsString::from).to_vec(),
            env: Vec::new(),
            memory_mib: 192,
            cpus: 1,
            scratch: None,
            stdio: transom_vm::Stdio::default(),
            timeout: Some(timeout),
            console: None,
            snapshots: None,
            directory: None,
            user: None,
            network: transom_vm::network::Network::Off,
            is_foreground: false,
        };
        let run = thread::spawn(move || transom_vm::run(&spec, &vmm));
        let mut guest = Self { run: RefCell::new(Some(run)), directory, transomd, socket: PathBuf::new() };
        guest.wait_until_beyond(20);
        guest.socket = socket_of(&pid);
        guest
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join("share").join(name)
    }

    /// Returns how far the guest has counted.
    fn progress(&self) -> u64 {
        let text = fs::read_to_string(self.file("progress")).unwrap_or_default();
        text.trim().parse().unwrap_or(0)
    }

    #[track_caller]
    fn wait_until_beyond(&self, count: u64) {
        self.wait_for("the guest to go on", || self.progress() > count);
    }

    #[track_caller]
    fn wait_for(&self, what: &str, condition: impl Fn() -> bool) {
        let begun = Instant::now();
        while !condition() {
            if let Some(run) = self.run.borrow_mut().take_if(|run| run.is_finished()) {
                panic!("the run has ended before {what}: {:?}", run.join());
            }
            assert!(begun.elapsed() < STEP_MAX, "waited {} s for {what}", STEP_MAX.as_secs());
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Replaces the daemon. Returns for how many milliseconds the guest had to wait.
    #[track_caller]
    fn upgrade(&self) -> f64 {
        let output = self.try_upgrade();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let said = String::from_utf8(output.stdout).unwrap();
        said.split_whitespace().find_map(|word| word.parse().ok()).unwrap()
    }

    fn try_upgrade(&self) -> Output {
        Command::new(&self.transomd).arg("--upgrade").arg(&self.socket).output().unwrap()
    }

    /// Fails unless the guest's locks hold on the host.
    #[track_caller]
    fn assert_locked(&self) {
        let open = |name: &str| File::options().write(true).open(self.file(name)).unwrap();
        assert!(open("locked").try_lock().is_err(), "the lock of flock(2) is lost");
        let lock = fcntl_lock(open(load::LOCKED), FlockOperation::NonBlockingLockExclusive);
        assert!(lock.is_err(), "the lock of fcntl(2) is lost");
    }

    /// Ends the guest and checks what it has done.
    fn end(self) {
        fs::write(self.file("stop"), "").unwrap();
        self.wait_for("the guest to finish", || self.file("finished").exists());
        let run = self.run.into_inner().expect("it has not ended");
        let outcome = run.join().unwrap().unwrap();
        let share = self.directory.path().join("share");
        assert_eq!(outcome.exit_code, 0, "{outcome:?}");
        let read = |name: &str| fs::read_to_string(share.join(name)).unwrap_or_default();
        let count: u64 = read("progress").trim().parse().unwrap();
        let expected: String = (1..=count).map(|number| format!("{number}\n")).collect();
        assert!(read("log") == expected, "the open file has lost or gained lines");
    }
}

/// Returns the socket of the daemon that the QEMU with the number in `pid` uses.
fn socket_of(pid: &Path) -> PathBuf {
    let pid = fs::read_to_string(pid).unwrap();
    let words = fs::read(Path::new("/proc").join(pid.trim()).join("cmdline")).unwrap();
    let path = words.split(|&byte| byte == 0).find_map(|word| {
        let word = std::str::from_utf8(word).ok()?.strip_prefix("socket,id=fs0,")?;
        word.split(',').find_map(|part| part.strip_prefix("path="))
    });
    std::ffi::OsStr::from_bytes(path.unwrap().as_bytes()).into()
}

/// What the guest runs.
#[test]
#[ignore = "a case of the other tests, in a guest"]
fn case_load() {
    load::run(Path::new("/share"));
}

const OPTIONS: &[&str] = &["--cache=metadata", "--flock", "--posix-lock"];

#[test]
fn a_guest_works_on_while_its_daemon_is_replaced() {
    let Some(needs) = Needs::find("a_guest_works_on", Emulator::Usual) else { return };
    works_on(&needs);
}

#[test]
fn a_guest_of_a_new_qemu_works_on_too() {
    let Some(needs) = Needs::find("a_guest_of_a_new_qemu", Emulator::New) else { return };
    works_on(&needs);
}

/// Replaces the daemon of a guest a few times.
fn works_on(needs: &Needs) {
    let guest = Guest::start(needs, OPTIONS, 4 * STEP_MAX);
    guest.assert_locked();
    for _ in 0..5 {
        let before = guest.progress();
        guest.upgrade();
        guest.assert_locked();
        guest.wait_until_beyond(before + 10);
    }
    guest.end();
}

#[test]
#[ignore = "1000 upgrades take some minutes"]
fn upgrade_every_200_ms_under_load() {
    let Some(needs) = Needs::find("upgrade_every_200_ms", Emulator::Usual) else { return };
    upgrade_repeatedly(&needs, 1000);
}

#[test]
#[ignore = "200 upgrades take a minute"]
fn upgrade_every_200_ms_under_load_of_a_new_qemu() {
    let Some(needs) = Needs::find("upgrade_every_200_ms_under_load_of_a_new_qemu", Emulator::New) else { return };
    upgrade_repeatedly(&needs, 200);
}

/// Replaces the daemon of a guest `count` times, or as often as `TRANSOM_UPGRADES` says.
fn upgrade_repeatedly(needs: &Needs, count: usize) {
    let count = std::env::var("TRANSOM_UPGRADES").map_or(count, |count| count.parse().unwrap());
    let guest = Guest::start(needs, OPTIONS, STEP_MAX + UPGRADE_EVERY * 20 * count as u32);
    let mut pauses = Vec::with_capacity(count);
    for _ in 0..count {
        thread::sleep(UPGRADE_EVERY);
        pauses.push(guest.upgrade());
        guest.assert_locked();
    }
    println!("{} upgrades while the guest counted to {}", pauses.len(), guest.progress());
    pauses.sort_by(f64::total_cmp);
    let at = |part: usize| pauses[(pauses.len() - 1) * part / 100];
    println!("pause in ms: median {:.1}, 95 of 100 below {:.1}, most {:.1}", at(50), at(95), at(100));
    guest.end();
}

#[test]
#[ignore = "takes a boot of its own"]
fn a_guest_with_a_window_works_on_when_an_upgrade_is_refused() {
    let Some(needs) = Needs::find("a_guest_with_a_window", Emulator::New) else { return };
    let window = Dax { window_len: 64 << 20, mode: DaxMode::Always };
    let guest = Guest::start_with(&needs, &["--cache=metadata"], Some(window), 4 * STEP_MAX);
    for _ in 0..5 {
        let before = guest.progress();
        let output = guest.try_upgrade();
        assert_eq!(output.status.code(), Some(1));
        let reason = String::from_utf8(output.stderr).unwrap();
        assert!(reason.contains("the front end keeps its mappings"), "{reason}");
        guest.wait_until_beyond(before + 10);
    }
    guest.end();
}
