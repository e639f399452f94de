//! The time from a call on the host to the event in a program of the guest, for docs/reports/017-events.md.
//!
//! The program answers an event by creating a file, on which the host waits: so the figures include one request of the
//! guest, and the wake-ups of both programs.

use std::{
    fs, io,
    mem::MaybeUninit,
    path::Path,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags},
};

use crate::{
    Guest, Machine,
    guest::{CONTROL, SHARE, signal},
    watcher::PATIENCE,
};

/// Number of changes of each kind.
const COUNT: usize = 500;

type Act = fn(&Path, usize) -> io::Result<()>;

/// Kinds of changes, each with what makes one.
const KINDS: [(&str, Act); 3] = [
    ("create", |share, number| fs::create_dir(share.join(format!("create-{number}")))),
    ("write", |share, number| fs::write(share.join(format!("write-{number}")), "after")),
    ("rename", |share, number| {
        fs::rename(share.join(format!("write-{number}")), share.join(format!("rename-{number}")))
    }),
];

/// Measures and prints a line for each kind of change.
pub(crate) fn measure(machine: &Machine, daemon: &Path) -> anyhow::Result<String> {
    let folder = tempfile::tempdir()?;
    let mut guest = Guest::new(folder.path(), machine, daemon, "delay")?;
    guest.spec.timeout = guest.spec.timeout.map(|timeout| 4 * timeout);
    let (share, control) = (guest.share.clone(), guest.control.clone());
    for number in 0..COUNT {
        fs::write(share.join(format!("write-{number}")), "before")?;
    }
    let (outcome, ()) = guest.run(|| {
        for (kind, act) in KINDS {
            let mut delays = Vec::new();
            for number in 0..COUNT {
                let mut answers = Names::in_directory(&control)?;
                let begun = Instant::now();
                act(&share, number)?;
                let answer = format!("{kind}-{number}");
                answers.until(|name, _| name == answer)?;
                delays.push(begun.elapsed());
            }
            delays.sort();
            let at = |percent: usize| delays[(delays.len() * percent / 100).min(delays.len() - 1)].as_micros();
            println!("     {kind}: p50 {} us, p99 {} us, max {} us, of {COUNT}", at(50), at(99), at(100));
        }
        Ok(fs::write(share.join("end"), "")?)
    })?;
    anyhow::ensure!(outcome.exit_code == 0, "{}", String::from_utf8_lossy(&outcome.stdout));
    Ok(String::new())
}

/// Answers the event that each change raises.
pub(crate) fn answer() -> anyhow::Result<()> {
    let share = Path::new(SHARE);
    for entry in fs::read_dir(share)? {
        fs::read(entry?.path())?;
    }
    let mut events = Names::in_directory(share)?;
    signal("ready")?;
    let mut failed = Ok(());
    events.until(|name, flags| {
        let is_due = match name.split('-').next() {
            Some("create") => flags.contains(ReadFlags::CREATE),
            Some("write") => flags.contains(ReadFlags::CLOSE_WRITE),
            Some("rename") => flags.contains(ReadFlags::MOVED_TO),
            _ => false,
        };
        if is_due && failed.is_ok() {
            failed = fs::write(Path::new(CONTROL).join(name), "");
        }
        name == "end"
    })?;
    Ok(failed?)
}

/// Names in a directory to which something happens.
struct Names(rustix::fd::OwnedFd);

impl Names {
    fn in_directory(dir: &Path) -> io::Result<Self> {
        let fd = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        inotify::add_watch(&fd, dir, WatchFlags::CREATE | WatchFlags::CLOSE_WRITE | WatchFlags::MOVED_TO)?;
        Ok(Self(fd))
    }

    /// Waits for names until one is the last. Errors: nothing happens for a long time.
    fn until(&mut self, mut is_last: impl FnMut(&str, ReadFlags) -> bool) -> io::Result<()> {
        let patience = Timespec { tv_sec: Duration::as_secs(&PATIENCE).cast_signed(), tv_nsec: 0 };
        let mut buffer = [MaybeUninit::uninit(); 4096];
        loop {
            if poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&patience))? == 0 {
                return Err(io::Error::other("nothing happens"));
            }
            let mut reader = inotify::Reader::new(&self.0, &mut buffer);
            while let Ok(event) = reader.next() {
                let name = event.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
                if is_last(&name, event.events()) {
                    return Ok(());
                }
            }
        }
    }
}
