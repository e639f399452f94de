//! A Linux guest under QEMU moves from one daemon to another while it reads and writes, and finds all as it was.
//!
//! The first machine is a run of the library; each further one has the same command line, and waits for the state of
//! the one before ([`machine`]). [`qmp`] tells them what to do. One case runs by default; the others need virtiofsd, or
//! more time: `cargo test -p transom-cli --test live_migration -- --ignored`.

mod machine;
mod qmp;

use std::{
    fmt::Display,
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use machine::First;
use transom_vm::{
    Kernel, Qemu,
    packages::{Cache, OnStderr, Packages},
    peer,
    tools::{Program, Tools},
};

/// Well above what any step takes on a busy machine, so that only one that hangs reaches it.
const STEP_MAX: Duration = Duration::from_secs(240);

/// What the guest does. It counts, and checks what it reads against what it has written; the file `big` is read from
/// the daemon each time. Files stay open, one of them without a name if the first argument is `removed`.
const SCRIPT: &str = r#"
exec 3>>open
if [ "$1" = removed ]; then exec 4<>nameless; rm nameless; echo kept >&4; fi
sum=$(md5sum < big)
[ -n "$sum" ] || echo "no sum" >> errors
i=0
while [ ! -e stop ]; do
  i=$((i + 1))
  echo $i >&3 || echo "$i: open" >> errors
  echo $i > dir/$((i % 40)) || echo "$i: write" >> errors
  read -r x < dir/$((i % 40)) || echo "$i: read" >> errors
  [ "$x" = $i ] || echo "$i: found $x" >> errors
  if [ $((i % 8)) = 0 ] && [ "$(md5sum < big)" != "$sum" ]; then echo "$i: big" >> errors; fi
  echo $i > progress.new && mv progress.new progress || echo "$i: rename" >> errors
done
if [ "$1" = removed ]; then echo more >&4 || echo nameless >> errors; fi
echo $i > finished
"#;

/// What a test needs from elsewhere.
struct Needs {
    cache: PathBuf,
    qemu: Program,
    kernel: Kernel,
    busybox: PathBuf,
    transomd: PathBuf,
}

impl Needs {
    /// Returns `None` and prints the reason if something is not available.
    fn find(test: &str) -> Option<Self> {
        let skipped = |reason: &dyn Display| println!("SKIPPED: {test}: {reason}");
        if !rustix::process::geteuid().is_root() {
            skipped(&"the daemons at both sides need the same rights; run it as root");
            return None;
        }
        let transomd = std::env::var_os("TRANSOM_DAEMON")
            .map_or_else(|| Path::new(env!("CARGO_BIN_EXE_transom")).with_file_name("transomd"), PathBuf::from);
        if !transomd.is_file() {
            skipped(&format!("no daemon {transomd:?}; build transomd"));
            return None;
        }
        let cache = Cache::locate().inspect_err(|error| skipped(error)).ok()?;
        let report = OnStderr::default();
        let tools = Tools::new(&cache, &report);
        // The version that has windows is also one that can migrate.
        let qemu = tools.qemu_with_window(None).inspect_err(|error| skipped(error)).ok()?;
        let kernel = tools.kernel(None).inspect_err(|error| skipped(error)).ok()?;
        let busybox = tools.busybox().inspect_err(|error| skipped(error)).ok()?;
        Some(Self { cache: tools.cache().to_owned(), qemu, kernel, busybox, transomd })
    }

    fn virtiofsd(&self, test: &str) -> Option<PathBuf> {
        let (cache, report) = (Cache::at(&self.cache), OnStderr::default());
        peer::virtiofsd(&Packages::new(&cache, &report)).inspect_err(|error| println!("SKIPPED: {test}: {error}")).ok()
    }
}

/// A daemon that is started by the test. Dropping it kills it.
struct Daemon {
    child: Child,
    socket: PathBuf,
}

impl Daemon {
    fn start(program: &Path, share: &Path, arguments: &[&str], socket: PathBuf) -> Self {
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

/// Waits until `condition` has a value.
#[track_caller]
fn wait_for<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(begun.elapsed() < STEP_MAX, "waited {} s for {what}", STEP_MAX.as_secs());
        thread::sleep(Duration::from_millis(20));
    }
}

/// Returns how far the guest has counted.
fn progress(share: &Path) -> Option<u64> {
    fs::read_to_string(share.join("progress")).ok()?.trim().parse().ok()
}

/// Boots a guest with the first daemon, and moves it to each of the others.
fn travel(needs: &Needs, daemons: &[&Path], arguments: &[&str], mode: &str) {
    let dir = tempfile::tempdir().unwrap();
    let share = dir.path().join("share");
    fs::create_dir_all(share.join("dir")).unwrap();
    fs::write(share.join("big"), (0..300_000_u32).flat_map(u32::to_le_bytes).collect::<Vec<_>>()).unwrap();
    let first = First::start(needs, daemons[0], arguments, &share, dir.path(), &["sh", "-c", SCRIPT, "sh", mode]);
    wait_for("the guest to begin", || {
        first.assert_runs();
        progress(&share).filter(|&count| count >= 20)
    });
    let mut machine = first.machine(dir.path());
    let mut kept = Vec::new();
    for (number, program) in daemons.iter().enumerate().skip(1) {
        let daemon = Daemon::start(program, &share, arguments, dir.path().join(format!("fs{number}.sock")));
        let mut next = machine.twin(&daemon.socket, dir.path(), number);
        next.take_over(&mut machine, &dir.path().join(format!("state{number}.sock")));
        let there = progress(&share).unwrap();
        wait_for("the guest to go on after the migration", || {
            next.assert_runs();
            progress(&share).filter(|&count| count > there + 20)
        });
        machine.end();
        machine = next;
        kept.push(daemon);
    }
    fs::write(share.join("stop"), "").unwrap();
    wait_for("the guest to finish", || {
        machine.assert_runs();
        fs::read_to_string(share.join("finished")).ok().filter(|text| text.ends_with('\n'))
    });
    assert_eq!(fs::read_to_string(share.join("errors")).unwrap_or_default(), "");
    let count: u64 = fs::read_to_string(share.join("finished")).unwrap().trim().parse().unwrap();
    let expected: String = (1..=count).map(|number| format!("{number}\n")).collect();
    assert!(fs::read_to_string(share.join("open")).unwrap() == expected, "the open file has lost or gained lines");
    machine.end();
}

#[test]
fn a_guest_moves_between_two_daemons_while_it_writes() {
    let Some(needs) = Needs::find("a_guest_moves") else { return };
    travel(&needs, &[&needs.transomd, &needs.transomd], &["--cache=metadata"], "");
}

#[test]
#[ignore = "builds virtiofsd, which takes minutes"]
fn a_guest_moves_from_virtiofsd_and_back_again() {
    const TEST: &str = "a_guest_moves_from_virtiofsd";
    let Some(needs) = Needs::find(TEST) else { return };
    let Some(virtiofsd) = needs.virtiofsd(TEST) else { return };
    let ours = needs.transomd.as_path();
    travel(&needs, &[&virtiofsd, ours, ours, &virtiofsd, ours], &["--cache=metadata"], "");
}

#[test]
#[ignore = "takes a boot of its own"]
fn a_removed_open_file_moves_by_its_handle() {
    let Some(needs) = Needs::find("a_removed_open_file") else { return };
    let arguments = ["--cache=metadata", "--migration-mode=file-handles"];
    travel(&needs, &[&needs.transomd, &needs.transomd], &arguments, "removed");
}

/// Returns QEMU as the library starts it, which listens for commands at `qmp` and leaves its number in `pid`.
fn qemu(needs: &Needs, qmp: &Path, pid: &Path) -> Qemu {
    let accelerator = transom_vm::Accelerator::best(&needs.qemu, &needs.kernel, &needs.cache);
    let arguments = ["-qmp".into(), qmp::listening(qmp), "-pidfile".into(), pid.into()];
    Qemu::new(needs.qemu.clone(), accelerator, &needs.cache).with_arguments(arguments)
}
