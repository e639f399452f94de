//! An agent without names, while shares come and go.

use std::{
    fs,
    io::{self, BufRead as _, BufReader},
    path::Path,
    process::{Command, Stdio},
    sync::mpsc,
    thread,
};

use anyhow::Context as _;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use crate::{
    Guest, Machine,
    guest::{SHARE, find_agent, signal},
    trees::wait,
    watcher::PATIENCE,
};

/// Mounts of the share, one after the other.
const MOUNTS: usize = 3;

pub(crate) fn later(machine: &Machine, daemon: &Path) -> anyhow::Result<String> {
    let folder = tempfile::tempdir()?;
    let mut guest = Guest::new(folder.path(), machine, daemon, "mounts")?;
    // The first share is the working directory of the first process.
    guest.spec.shares.rotate_right(1);
    let (share, control) = (guest.share.clone(), guest.control.clone());
    let (outcome, ()) = guest.run(|| {
        for number in 0..MOUNTS {
            let is_mounted = control.join(format!("mounted {number}"));
            wait(3 * PATIENCE, || Ok(is_mounted.exists())).context("the share is not mounted")?;
            // The agent serves the share a moment later, and is told of changes from then on.
            let is_seen = control.join(format!("seen {number}"));
            let mut changes = 0;
            wait(3 * PATIENCE, || {
                changes += 1;
                fs::write(share.join(format!("in mount {number}, change {changes}")), "")?;
                Ok(is_seen.exists())
            })
            .context("the guest does not see any change")?;
        }
        Ok(())
    })?;
    anyhow::ensure!(outcome.exit_code == 0, "{}", String::from_utf8_lossy(&outcome.stdout));
    Ok(format!("({MOUNTS} mounts) "))
}

/// Starts the agent while the share is not mounted, and mounts it several times. What it serves from the beginning,
/// and what it cannot serve, makes no difference.
pub(crate) fn see_later() -> anyhow::Result<()> {
    signal("ready")?;
    std::env::set_current_dir("/")?;
    // Ends the agent that serves shares by their names.
    unmount(SHARE, UnmountFlags::empty()).context("umount")?;
    wait(PATIENCE, || Ok(find_agent()?.is_none())).context("the agent by names goes on")?;
    let mut agent = Command::new("/transom-agent").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let mut line = String::new();
    BufReader::new(agent.stdout.take().context("a pipe")?).read_line(&mut line)?;
    anyhow::ensure!(line == "ready\n", "{line:?}");
    let complaints = BufReader::new(agent.stderr.take().context("a pipe")?).lines();
    let (sender, said) = mpsc::channel();
    thread::spawn(move || complaints.map_while(Result::ok).for_each(|line| drop(sender.send(line))));

    for number in 0..MOUNTS {
        mount("share1", SHARE, "virtiofs", MountFlags::empty(), None).context("mount")?;
        let prefix = format!("in mount {number}, ");
        let is_seen = || {
            let names = fs::read_dir(SHARE)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
            let names = names.collect::<io::Result<Vec<_>>>()?;
            Ok(names.iter().any(|name| name.starts_with(&prefix)))
        };
        // The list is cached for a day, unless a change is replayed.
        anyhow::ensure!(!is_seen()?, "something has changed too early");
        signal(&format!("mounted {number}"))?;
        wait(PATIENCE, is_seen).with_context(|| format!("no change is seen in mount {number}"))?;
        signal(&format!("seen {number}"))?;
        anyhow::ensure!(agent.try_wait()?.is_none(), "the agent has ended");
        unmount(SHARE, UnmountFlags::empty()).context("umount")?;
    }
    agent.kill()?;
    agent.wait()?;
    // Once, however often mounts have changed.
    let refused = said.iter().filter(|line| line.contains("/mnt/program")).count();
    anyhow::ensure!(refused == 1, "{refused} complaints about the share without events");
    Ok(())
}
