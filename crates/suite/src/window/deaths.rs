//! Kills a process while the window is mapped: the daemon, whose death the machine must survive with its mappings; or
//! the machine, after which the daemon must exit by itself.

use std::{
    fs::{self, File},
    path::Path,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use rustix::process::{Pid, Signal, getpid, kill_process};
use transom_conformance::tools;

use crate::{Verdict, guest::Virtual};

const FILE_LEN: u64 = 4 << 20;
/// Counts as long as the guest lives.
const COUNTER: u64 = 2 << 20;
/// So much the guest adds meanwhile shows that it lives.
const BEATS: u64 = 100_000;
const PATIENCE: Duration = Duration::from_secs(120);
const BETWEEN_LOOKS: Duration = Duration::from_millis(10);

pub(super) fn daemon(machine: &Virtual, share: &Path) -> anyhow::Result<Verdict> {
    while_it_beats(machine, share, |file, daemons, vmm| {
        // 1. The guest goes on without its daemon.
        daemons.iter().try_for_each(|&daemon| kill_process(daemon, Signal::KILL))?;
        daemons.iter().try_for_each(|&daemon| wait_for_end(daemon))?;
        let now = tools::watch(file, COUNTER, 0, Duration::ZERO)?;
        tools::watch(file, COUNTER, now + BEATS, PATIENCE).context("after the daemon's end")?;
        ensure!(is_alive(vmm), "the machine ended with its daemon");
        Ok(())
    })
}

pub(super) fn vmm(machine: &Virtual, share: &Path) -> anyhow::Result<Verdict> {
    while_it_beats(machine, share, |_, daemons, vmm| {
        kill_process(vmm, Signal::KILL)?;
        daemons.iter().try_for_each(|&daemon| wait_for_end(daemon)).context("the daemon")
    })
}

pub(super) fn beat() -> anyhow::Result<()> {
    tools::count(Path::new("/share/file"), COUNTER, u64::MAX).map(drop)
}

/// What begins the name of QEMU.
const VMM: &str = "qemu-system";

/// Boots a guest that counts in a mapping, and meanwhile does `work` with the file, the processes of the daemon and the
/// machine. Then the machine is killed, since the guest counts forever.
fn while_it_beats(
    machine: &Virtual,
    share: &Path,
    work: impl FnOnce(&Path, &[Pid], Pid) -> anyhow::Result<()>,
) -> anyhow::Result<Verdict> {
    let file = share.join("file");
    File::create(&file)?.set_len(FILE_LEN)?;
    thread::scope(|scope| {
        let guest = scope.spawn(|| machine.inside(vec![machine.share(share, "/share")], &["beat"]));
        let beats = tools::watch(&file, COUNTER, BEATS, PATIENCE);
        // While there is a daemon.
        let run = run_of(share);
        let result = beats.and_then(|_| {
            let run = run.as_ref().map_err(|error| anyhow::anyhow!("{error:#}"))?;
            let daemons = descendants("transomd", &share.to_string_lossy())?;
            work(&file, &daemons, *descendants(VMM, run)?.first().context("there is no machine")?)
        });
        // Without a daemon there is no machine either, or it has not got as far as its job.
        for vmm in run.iter().flat_map(|run| descendants(VMM, run)).flatten() {
            let _ = kill_process(vmm, Signal::KILL);
        }
        let ended = guest.join().map_err(|_| anyhow::anyhow!("a thread panicked"))?;
        result?;
        ensure!(ended.is_err(), "the guest ended by itself");
        Ok(Verdict::passed(None))
    })
}

/// The directory of the run whose daemon serves `share`. The command line of the run's machine names it too; other
/// machines with the same devices run at the same time.
fn run_of(share: &Path) -> anyhow::Result<String> {
    let daemon = *descendants("transomd", &share.to_string_lossy())?.first().context("there is no daemon")?;
    let line = fs::read(format!("/proc/{}/cmdline", daemon.as_raw_nonzero()))?;
    let line = String::from_utf8_lossy(&line);
    let socket = line.split('\0').skip_while(|word| *word != "--metrics-socket").nth(1);
    let run = Path::new(socket.context("a daemon without metrics")?).parent();
    Ok(format!("{}/", run.context("a socket without a directory")?.display()))
}

/// The processes started by this one, or by one of its children, with both in their command lines.
fn descendants(program: &str, argument: &str) -> anyhow::Result<Vec<Pid>> {
    let is_meant = |pid: &Pid| {
        let line = fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero())).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        line.contains(program) && line.contains(argument)
    };
    let found = fs::read_dir("/proc")?.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    Ok(found.filter_map(Pid::from_raw).filter(is_meant).filter(is_ours).collect())
}

fn is_ours(pid: &Pid) -> bool {
    std::iter::successors(Some(*pid), |pid| parent(*pid)).skip(1).any(|ancestor| ancestor == getpid())
}

/// The fourth field of the state, after a name in parentheses that may hold anything, and the state's letter.
fn parent(pid: Pid) -> Option<Pid> {
    Pid::from_raw(state(pid)?.split_whitespace().nth(1)?.parse().ok()?)
}

fn is_alive(pid: Pid) -> bool {
    state(pid).is_some_and(|state| !state.starts_with(['Z', 'X']))
}

fn state(pid: Pid) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    Some(text.rsplit_once(") ")?.1.to_owned())
}

fn wait_for_end(pid: Pid) -> anyhow::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while is_alive(pid) {
        ensure!(Instant::now() < deadline, "process {pid:?} did not end");
        thread::sleep(BETWEEN_LOOKS);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{
        os::unix::process::CommandExt as _,
        process::{Child, Command},
    };

    use rustix::process::kill_process_group;

    use super::*;

    /// A process with these words in its command line, until it is dropped.
    struct Stand(Child);

    impl Stand {
        fn with(words: &[&str]) -> Self {
            let mut command = Command::new("sh");
            Self(command.args(["-c", "sleep 600; :"]).args(words).process_group(0).spawn().unwrap())
        }
    }

    impl Drop for Stand {
        fn drop(&mut self) {
            let _ = kill_process_group(Pid::from_child(&self.0), Signal::KILL);
            let _ = self.0.wait();
        }
    }

    #[test]
    fn the_machine_of_a_share_is_told_from_others_that_run_at_the_same_time() {
        let dir = tempfile::tempdir().unwrap();
        let share = |number: u32| dir.path().join(format!("share{number}"));
        let run = |number: u32| dir.path().join(format!("run{number}")).display().to_string();
        let mut stands = Vec::new();
        for number in [1, 2, 12] {
            let (share, metrics) = (share(number).display().to_string(), format!("{}/share0.metrics", run(number)));
            stands.push(Stand::with(&["transomd", "--shared-dir", &share, "--metrics-socket", &metrics]));
            stands.push(Stand::with(&["qemu-system-x86_64", "-initrd", &format!("{}/initramfs.cpio", run(number))]));
        }
        let run = run_of(&share(2)).unwrap();
        assert_eq!(descendants(VMM, &run).unwrap(), [Pid::from_child(&stands[3].0)]);
        assert!(run_of(&share(3)).is_err());
    }
}
