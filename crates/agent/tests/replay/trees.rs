//! Trees that are compared after many changes, and what happens to the share as a whole.

use std::{
    collections::HashMap,
    fs::{self, File},
    io::{self, Read as _, Write as _},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use rustix::{
    fs::{Mode, OFlags, open},
    mount::{MountFlags, UnmountFlags, mount, mount_remount, unmount},
};

use crate::{
    Guest, Machine,
    guest::{CONTROL, SHARE, describe, signal},
    untouched,
    watcher::PATIENCE,
};

/// Directories of a tree, more than the agent keeps open.
const DIRECTORIES: usize = 600;

/// Files that the guest keeps open, one in each of the first directories.
const OPEN: usize = 20;

/// The directory of the changes, and files that the host makes before and after the changes.
const END: &str = "end";

fn directory(root: &Path, number: usize) -> PathBuf {
    root.join(format!("dir {}", number % DIRECTORIES))
}

/// Makes a tree that the guest learns.
fn plant(root: &Path, directories: usize) -> io::Result<()> {
    for number in 0..directories {
        let dir = directory(root, number);
        fs::create_dir(&dir)?;
        for name in ["kept", "written", "moved", "removed"] {
            fs::write(dir.join(name), name)?;
        }
    }
    Ok(())
}

/// Makes `count` changes: writes, renames, removals, creations, of files and directories.
fn grow(root: &Path, count: usize) -> io::Result<()> {
    for number in 0..count {
        let dir = directory(root, number / 8);
        let round = number / 8 / DIRECTORIES;
        match number % 8 {
            0 => fs::write(dir.join("written"), format!("round {round}"))?,
            1 => fs::rename(dir.join("moved"), dir.join("aside"))?,
            2 => fs::rename(dir.join("aside"), dir.join("moved"))?,
            3 => fs::remove_file(dir.join("removed"))?,
            4 => fs::write(dir.join("removed"), format!("again {round}"))?,
            5 => fs::create_dir_all(dir.join(format!("sub {}", round % 10)))?,
            6 => fs::write(dir.join(format!("sub {}", round % 10)).join("file"), format!("{round}"))?,
            _ => fs::write(dir.join(format!("new {}", round % 10)), format!("{round}"))?,
        }
    }
    fs::write(root.join(END), "")
}

pub(crate) fn many(machine: &Machine, daemon: &Path) -> anyhow::Result<String> {
    Ok(compare(machine, daemon, 5000)?.0)
}

/// So many at once that the queue of the daemon is full.
pub(crate) fn hundred_thousand(machine: &Machine, daemon: &Path) -> anyhow::Result<String> {
    let (remark, lost) = compare(machine, daemon, 100_000)?;
    anyhow::ensure!(lost > 0, "nothing was lost");
    Ok(format!("{remark}(lost {lost} times) "))
}

/// Returns a remark and how often changes were lost.
fn compare(machine: &Machine, daemon: &Path, count: usize) -> anyhow::Result<(String, u64)> {
    let folder = tempfile::tempdir()?;
    let mut guest = Guest::new(folder.path(), machine, daemon, "tree")?;
    let (share, control) = (guest.share.clone(), guest.control.clone());
    let metrics = folder.path().join("metrics");
    guest.spec.shares[0].daemon_args.extend(["--metrics-socket".into(), metrics.clone().into()]);
    plant(&share, DIRECTORIES)?;
    let (outcome, (before, lost)) = guest.run(|| {
        grow(&share, count)?;
        let told = control.join("tree");
        fs::write(&told, describe(&share)?.join("\n"))?;
        fs::rename(told, control.join("expected"))?;
        Ok((untouched(&share)?, overflows(&metrics)?))
    })?;
    anyhow::ensure!(outcome.exit_code == 0, "{}", String::from_utf8_lossy(&outcome.stdout));
    anyhow::ensure!(before == untouched(&share)?, "the share changed");
    Ok((format!("({count} changes) "), lost))
}

/// Returns how often the daemon has lost changes.
fn overflows(metrics: &Path) -> anyhow::Result<u64> {
    let mut stream = UnixStream::connect(metrics)?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let line = text.lines().find_map(|line| line.strip_prefix("transom_replay_overflows_total "));
    Ok(line.context("no such metric")?.trim().parse()?)
}

/// Learns the tree, keeps files open, and waits until all of it is as the host says.
pub(crate) fn see() -> anyhow::Result<()> {
    let share = Path::new(SHARE);
    describe(share)?;
    let open: HashMap<usize, File> = (0..OPEN)
        .map(|number| Ok((number, File::open(directory(share, number).join("written"))?)))
        .collect::<io::Result<_>>()?;
    signal("ready")?;
    let expected = Path::new(CONTROL).join("expected");
    wait(4 * PATIENCE, || Ok(expected.exists())).context("the host is not done")?;
    let expected = fs::read_to_string(expected)?;
    wait(PATIENCE, || Ok(share.join(END).exists())).context("the last change is not seen")?;
    let mut found = Vec::new();
    let is_same = wait(PATIENCE, || {
        found = describe(share)?;
        Ok(found.join("\n") == expected)
    });
    let differences = || {
        let expected: Vec<&str> = expected.lines().collect();
        let wrong = found.iter().filter(|line| !expected.contains(&line.as_str())).take(5).collect::<Vec<_>>();
        format!("{} lines, not {}; wrong: {wrong:?}", found.len(), expected.len())
    };
    is_same.with_context(differences)?;
    for (number, file) in open {
        // A rewritten file keeps its inode, so an open descriptor sees it.
        let (by_name, by_descriptor) = (fs::metadata(directory(share, number).join("written"))?, file.metadata()?);
        anyhow::ensure!(by_name.len() == by_descriptor.len(), "{number}: {by_name:?} {by_descriptor:?}");
    }
    Ok(())
}

/// The host renames a file to another name and back, and removes it there and makes it again, as fast as it can, while
/// the agent of the guest replays that.
pub(crate) fn back_and_forth(machine: &Machine, daemon: &Path) -> anyhow::Result<String> {
    const FILES: usize = 5;
    const ROUNDS: usize = 400;
    let folder = tempfile::tempdir()?;
    let guest = Guest::new(folder.path(), machine, daemon, "tree")?;
    let (share, control) = (guest.share.clone(), guest.control.clone());
    plant(&share, OPEN)?;
    let name = |file: usize| share.join(format!("name {file}"));
    let other = |file: usize| share.join(format!("dir {file}")).join("other");
    for file in 0..FILES {
        fs::write(name(file), file.to_string())?;
    }
    let (outcome, ()) = guest.run(|| {
        for round in 0..ROUNDS {
            for file in 0..FILES {
                fs::rename(name(file), other(file))?;
                if round % 3 == 0 {
                    fs::remove_file(other(file))?;
                    fs::write(other(file), file.to_string())?;
                }
                fs::rename(other(file), name(file))?;
            }
        }
        fs::write(share.join(END), "")?;
        let told = control.join("tree");
        fs::write(&told, describe(&share)?.join("\n"))?;
        Ok(fs::rename(told, control.join("expected"))?)
    })?;
    anyhow::ensure!(outcome.exit_code == 0, "{}", String::from_utf8_lossy(&outcome.stdout));
    for file in 0..FILES {
        let content = fs::read_to_string(name(file)).with_context(|| format!("file {file} is lost"))?;
        anyhow::ensure!(content == file.to_string(), "file {file} has {content:?}");
    }
    Ok(format!("({} renames) ", 2 * FILES * ROUNDS))
}

pub(crate) fn unmounted(machine: &Machine, daemon: &Path) -> anyhow::Result<String> {
    let folder = tempfile::tempdir()?;
    let mut guest = Guest::new(folder.path(), machine, daemon, "unmount")?;
    // The first share is the working directory of the first process.
    guest.spec.shares.rotate_right(1);
    let (share, control) = (guest.share.clone(), guest.control.clone());
    fs::create_dir(share.join("sub"))?;
    let (outcome, ()) = guest.run(|| {
        // The agent opens the directory.
        fs::write(share.join("sub/file"), "")?;
        let is_read_only = control.join("read-only");
        wait(3 * PATIENCE, || Ok(is_read_only.exists())).context("the share is not remounted")?;
        Ok(fs::write(share.join("sub/another"), "")?)
    })?;
    anyhow::ensure!(outcome.exit_code == 0, "{}", String::from_utf8_lossy(&outcome.stdout));
    Ok(String::new())
}

/// Unmounts the share while the agent has directories of it open, mounts it again and makes it read-only.
pub(crate) fn see_unmounted() -> anyhow::Result<()> {
    let seen = Path::new(SHARE).join("sub/file");
    anyhow::ensure!(!seen.exists(), "it is there");
    signal("ready")?;
    wait(PATIENCE, || Ok(seen.exists())).context("the change is not seen")?;
    std::env::set_current_dir("/")?;
    unmount(SHARE, UnmountFlags::empty()).context("umount")?;
    let agent = || crate::guest::find_agent();
    wait(PATIENCE, || Ok(agent()?.is_none())).context("the agent of a share that is not mounted goes on")?;
    mount("share1", SHARE, "virtiofs", MountFlags::empty(), None).context("mount")?;
    let mut child = std::process::Command::new("/transom-agent")
        .arg(SHARE)
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    io::BufRead::read_line(&mut io::BufReader::new(child.stdout.take().context("a pipe")?), &mut line)?;
    anyhow::ensure!(line == "ready\n", "{line:?}");
    mount_remount(SHARE, MountFlags::RDONLY, "").context("remount")?;
    let root = open(SHARE, OFlags::DIRECTORY, Mode::empty())?;
    // The next change below a directory that this guest knows cannot be replayed.
    anyhow::ensure!(seen.exists(), "it is gone");
    signal("read-only")?;
    let mut status = None;
    wait(PATIENCE, || {
        status = child.try_wait()?;
        Ok(status.is_some())
    })
    .context("the agent of a read-only share goes on")?;
    let mut said = String::new();
    child.stderr.take().context("a pipe")?.read_to_string(&mut said)?;
    anyhow::ensure!(
        status.is_some_and(|status| !status.success()) && said.contains("read-only"),
        "the agent: {status:?} {said}"
    );
    // Reading goes on, and nothing can be written.
    anyhow::ensure!(seen.exists() && fs::write(Path::new(SHARE).join("new"), "").is_err(), "it is not read-only");
    drop(root);
    Ok(())
}

/// Waits until something holds.
pub(crate) fn wait(patience: Duration, mut holds: impl FnMut() -> anyhow::Result<bool>) -> anyhow::Result<()> {
    let deadline = Instant::now() + patience;
    while !holds()? {
        anyhow::ensure!(Instant::now() < deadline, "it takes too long");
        thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}
