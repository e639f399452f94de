//! What runs in the guest.

use std::{
    collections::HashMap,
    fmt::Write as _,
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use rustix::thread::{set_thread_gid, set_thread_uid};
use rustix::{
    fs::{Gid, Uid},
    io::Errno,
    process::{Pid, Signal, kill_process},
};
use transom_wire::agent::{AGENT_GID, EXCHANGE_LEN, Hello, VERSION};
use zerocopy::IntoBytes;

use crate::{
    rows::{END, ROWS, Row},
    sys,
    watcher::{PATIENCE, Watcher},
};

/// The mount points: what is tested, and how host and guest wait for each other.
pub(crate) const SHARE: &str = "/mnt/share";
pub(crate) const CONTROL: &str = "/mnt/control";

/// Compares events and caches of all rows with a local file system.
pub(crate) fn compare() -> anyhow::Result<()> {
    let local = Path::new("/tmp/local");
    for row in ROWS {
        fs::create_dir_all(local.join(row.name))?;
        (row.prepare)(&local.join(row.name))?;
    }
    let expected = record(local, || {
        for row in ROWS {
            (row.act)(&local.join(row.name))?;
            fs::write(local.join(row.name).join(END), "")?;
        }
        Ok(())
    })?;
    let found = record(Path::new(SHARE), || signal("ready"))?;
    let mut differences = String::new();
    for row in ROWS {
        let of = |rows: &HashMap<String, Vec<String>>| rows.get(row.name).cloned().unwrap_or_default();
        let (expected, found) = (of(&expected), of(&found));
        anyhow::ensure!(!normal(row, &expected).is_empty(), "{}: a local change raises no event", row.name);
        if normal(row, &expected) != normal(row, &found) {
            writeln!(differences, "{}: expected {expected:#?}, found {found:#?}", row.name)?;
        }
    }
    let (local, share) = (describe(local)?, describe(Path::new(SHARE))?);
    if local != share {
        write!(differences, "the caches differ: expected {local:#?}, found {share:#?}")?;
    }
    anyhow::ensure!(differences.is_empty(), "{differences}");
    Ok(())
}

/// Watches the rows below `root`, looks at all that they may know, and records what happens after `begin`.
fn record(root: &Path, begin: impl FnOnce() -> io::Result<()>) -> anyhow::Result<HashMap<String, Vec<String>>> {
    let mut watcher = watch(root)?;
    begin()?;
    let last = ROWS.last().map_or("", |row| row.name);
    Ok(watcher.until(|row, name| row == last && name == END)?)
}

/// Watches the rows below `root`, and looks at all that they may know.
pub(crate) fn watch(root: &Path) -> anyhow::Result<Watcher> {
    let mut watcher = Watcher::new()?;
    for row in ROWS {
        watcher.add(root, row.name, "")?;
        let dir = root.join(row.name);
        for name in names(&dir, row.unseen)? {
            let path = dir.join(&name);
            if fs::symlink_metadata(&path)?.is_dir() {
                watcher.add(root, row.name, &name)?;
                continue;
            }
            fs::read(&path)?;
        }
        for name in row.watched {
            watcher.add(root, row.name, name)?;
        }
        let _ = fs::metadata(dir.join("absent"));
    }
    Ok(watcher)
}

/// Names below `dir` except `unseen`. They are known from the local file system, since to list a directory of the share
/// is to see all its names.
fn names(dir: &Path, unseen: &[&str]) -> io::Result<Vec<String>> {
    let local = Path::new("/tmp/prepared").join(dir.file_name().unwrap_or_default());
    if !local.exists() {
        fs::create_dir_all(&local)?;
        let row = ROWS.iter().find(|row| dir.ends_with(row.name));
        row.map_or(Ok(()), |row| (row.prepare)(&local))?;
    }
    let mut names = Vec::new();
    let mut left = vec![PathBuf::new()];
    while let Some(below) = left.pop() {
        for entry in fs::read_dir(local.join(&below))? {
            let entry = entry?;
            let path = below.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                left.push(path.clone());
            }
            names.push(path.to_string_lossy().into_owned());
        }
    }
    names.retain(|name| !unseen.contains(&name.as_str()));
    names.sort();
    Ok(names)
}

/// Returns the events up to the end of the row that have to be equal, with cookies counted from the row's first.
fn normal(row: &Row, events: &[String]) -> Vec<String> {
    let is_equal = |event: &&String| {
        let is_of_data = event.contains("MODIFY") || event.contains("CLOSE_WRITE");
        !(is_of_data && row.fleeting.iter().any(|name| event.ends_with(&format!(" {name}"))))
    };
    count_cookies(events.iter().take_while(|event| !event.ends_with(&format!(" {END}"))).filter(is_equal))
}

/// Returns events with their cookies counted from the first one.
pub(crate) fn count_cookies<'a>(events: impl IntoIterator<Item = &'a String>) -> Vec<String> {
    let mut cookies: Vec<&str> = Vec::new();
    let mut counted = Vec::new();
    for event in events {
        let Some((text, cookie)) = event.rsplit_once('#') else {
            counted.push(event.clone());
            continue;
        };
        let at = cookies.iter().position(|known| *known == cookie).unwrap_or(cookies.len());
        if at == cookies.len() {
            cookies.push(cookie);
        }
        counted.push(format!("{text}#{at}"));
    }
    counted
}

/// Returns everything below `root` as programs see it.
pub(crate) fn describe(root: &Path) -> io::Result<Vec<String>> {
    let mut lines = Vec::new();
    let mut left = vec![root.to_owned()];
    while let Some(dir) = left.pop() {
        for entry in fs::read_dir(&dir)? {
            let path = entry?.path();
            let stat = fs::symlink_metadata(&path)?;
            let data = match stat.file_type() {
                kind if kind.is_file() => fs::read_to_string(&path)?,
                kind if kind.is_symlink() => fs::read_link(&path)?.to_string_lossy().into_owned(),
                _ => String::new(),
            };
            if stat.is_dir() {
                left.push(path.clone());
            }
            let name = path.strip_prefix(root).unwrap_or(&path);
            let links = if stat.is_dir() { 0 } else { stat.nlink() };
            lines.push(format!("{name:?} {:o} {links} {data:?}", stat.mode()));
        }
    }
    lines.sort();
    Ok(lines)
}

/// Imitates the agent, as root and as an ordinary user; nothing may come of it.
pub(crate) fn imitate() -> anyhow::Result<()> {
    let file = Path::new(SHARE).join("real");
    let root = fs::File::open(SHARE)?;
    let try_exchange = |what: &str, expected: i32| {
        let mut argument = [0; EXCHANGE_LEN];
        let hello = Hello { version: VERSION.into(), ..Hello::default() };
        argument[..size_of::<Hello>()].copy_from_slice(hello.as_bytes());
        let error = sys::exchange(&root, &mut argument).err().and_then(|error| error.raw_os_error());
        anyhow::ensure!(error == Some(expected), "{what}: {error:?}, not {expected}");
        Ok(())
    };
    try_exchange("root without the group", libc::EPERM)?;
    sys::set_request_group(AGENT_GID)?;
    try_exchange("a second agent", libc::EBUSY)?;
    for (what, error) in [
        ("unlink", fs::remove_file(&file).err()),
        ("rename", fs::rename(&file, file.with_file_name("elsewhere")).err()),
        ("write", fs::OpenOptions::new().write(true).open(&file).err()),
        ("truncate", fs::File::create(&file).err()),
        ("create", fs::write(file.with_file_name("new"), "").err()),
        ("mkdir", fs::create_dir(file.with_file_name("new")).err()),
        ("mode", fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o777)).err()),
        ("link", fs::hard_link(&file, file.with_file_name("new")).err()),
    ] {
        let error = error.as_ref().and_then(io::Error::raw_os_error);
        anyhow::ensure!(error == Some(libc::EPERM), "{what} by somebody else in the agent's group: {error:?}");
    }
    let content = fs::read_to_string(&file)?;
    anyhow::ensure!(content == "kept", "reading is allowed to everybody: {content:?}");
    sys::set_request_group(0)?;
    set_thread_gid(Gid::from_raw(1000))?;
    set_thread_uid(Uid::from_raw(1000))?;
    anyhow::ensure!(sys::set_request_group(AGENT_GID).is_err(), "an ordinary user gets the agent's group");
    try_exchange("an ordinary user", libc::EPERM)
}

/// Kills the agent and starts it anew while the host removes and renames names, and makes them again.
pub(crate) fn kill() -> anyhow::Result<()> {
    for name in names_of_share()? {
        fs::read(Path::new(SHARE).join(name))?;
    }
    signal("ready")?;
    let mut kills = 0;
    while !Path::new(CONTROL).join("stop").exists() {
        let mut agent = None;
        if let Some(pid) = find_agent()? {
            match kill_process(pid, Signal::KILL) {
                Ok(()) => kills += 1,
                // It has just ended by itself.
                Err(Errno::SRCH) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        let deadline = Instant::now() + PATIENCE;
        while agent.is_none() {
            anyhow::ensure!(Instant::now() < deadline, "the agent does not start anew");
            let mut child = std::process::Command::new("/transom-agent")
                .arg(SHARE)
                .stdout(std::process::Stdio::piped())
                .stderr(std::process::Stdio::null())
                .spawn()?;
            let mut line = String::new();
            let stdout = child.stdout.take().expect("it is a pipe");
            io::BufRead::read_line(&mut io::BufReader::new(stdout), &mut line)?;
            if line == "ready\n" {
                agent = Some(child);
            } else {
                child.wait()?;
            }
        }
        // Somewhere within what it does.
        thread::sleep(Duration::from_millis(kills % 17));
        if let Some(mut child) = agent {
            child.kill()?;
            child.wait()?;
            kills += 1;
        }
    }
    println!("{kills}");
    Ok(())
}

fn names_of_share() -> io::Result<Vec<std::ffi::OsString>> {
    fs::read_dir(SHARE)?.map(|entry| Ok(entry?.file_name())).collect()
}

pub(crate) fn find_agent() -> io::Result<Option<Pid>> {
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        let exe = fs::read_link(entry.path().join("exe"));
        if exe.is_ok_and(|exe| exe == Path::new("/transom-agent")) {
            let number = entry.file_name().to_string_lossy().parse().ok();
            return Ok(number.and_then(Pid::from_raw));
        }
    }
    Ok(None)
}

pub(crate) fn signal(name: &str) -> io::Result<()> {
    fs::write(Path::new(CONTROL).join(name), "")
}
