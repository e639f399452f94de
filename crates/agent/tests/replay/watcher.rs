//! inotify, as programs use it.

use std::{
    collections::HashMap,
    io,
    mem::MaybeUninit,
    os::fd::OwnedFd,
    path::Path,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags},
};

/// Longer than anything takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// The events of which a program is told, by row.
pub(crate) struct Watcher {
    fd: OwnedFd,
    /// Row and name within it of each watch.
    watches: HashMap<i32, (String, String)>,
    cookies: HashMap<u32, usize>,
}

/// What is compared. Reading is not replayed, and the kernel merges repeated events or not as it happens.
const WATCHED: WatchFlags = WatchFlags::MODIFY
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::CLOSE_WRITE)
    .union(WatchFlags::MOVE)
    .union(WatchFlags::CREATE)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::DONT_FOLLOW);

impl Watcher {
    pub(crate) fn new() -> io::Result<Self> {
        let fd = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        Ok(Self { fd, watches: HashMap::new(), cookies: HashMap::new() })
    }

    /// Watches `name` in the directory of `row`; an empty name is the directory.
    pub(crate) fn add(&mut self, below: &Path, row: &str, name: &str) -> io::Result<()> {
        let watch = inotify::add_watch(&self.fd, below.join(row).join(name), WATCHED)?;
        self.watches.insert(watch, (row.to_owned(), name.to_owned()));
        Ok(())
    }

    /// Waits for an event of `kind` on anything that is watched. Errors: too much time has passed.
    pub(crate) fn until_event(&mut self, kind: &str) -> anyhow::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        let mut buffer = [MaybeUninit::uninit(); 4096];
        while Instant::now() < deadline {
            let second = Timespec { tv_sec: 1, tv_nsec: 0 };
            poll(&mut [PollFd::new(&self.fd, PollFlags::IN)], Some(&second))?;
            let mut reader = inotify::Reader::new(&self.fd, &mut buffer);
            while let Ok(event) = reader.next() {
                if format!("{:?}", event.events()).contains(kind) {
                    return Ok(());
                }
            }
        }
        anyhow::bail!("no {kind}")
    }

    /// Collects events until `is_last` says so; by row, repeated ones once.
    ///
    /// # Errors
    ///
    /// Too much time has passed.
    pub(crate) fn until(&mut self, is_last: impl Fn(&str, &str) -> bool) -> io::Result<HashMap<String, Vec<String>>> {
        let mut rows: HashMap<String, Vec<String>> = HashMap::new();
        let deadline = Instant::now() + PATIENCE;
        let mut has_ended = false;
        while !has_ended {
            if Instant::now() > deadline {
                return Err(io::Error::other(format!("the last event did not arrive: {rows:#?}")));
            }
            let second = Timespec { tv_sec: 1, tv_nsec: 0 };
            poll(&mut [PollFd::new(&self.fd, PollFlags::IN)], Some(&second))?;
            let mut buffer = [MaybeUninit::uninit(); 4096];
            let mut reader = inotify::Reader::new(&self.fd, &mut buffer);
            while let Ok(event) = reader.next() {
                let Some((row, watch)) = self.watches.get(&event.wd()) else { continue };
                let name = event.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
                let kind = event.events() - ReadFlags::ISDIR;
                let cookie = match event.cookie() {
                    0 => String::new(),
                    cookie => {
                        let next = self.cookies.len();
                        format!(" #{}", self.cookies.entry(cookie).or_insert(next))
                    }
                };
                let is_directory = if event.events().contains(ReadFlags::ISDIR) { " directory" } else { "" };
                has_ended |= is_last(row, &name);
                let text = format!("[{watch}] {kind:?}{is_directory} {name}{cookie}");
                let texts = rows.entry(row.clone()).or_default();
                if !(kind == ReadFlags::MODIFY && texts.last() == Some(&text)) {
                    texts.push(text);
                }
            }
        }
        Ok(rows)
    }
}
