//! The outcome of a step, reduced to what two directories can agree on.

use std::{collections::BTreeMap, thread};

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::client::{Attr, Errno, FileType, Lock, LockKind, Time};

/// The answer of a system call: an error, or facts by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Outcome {
    /// `ok`, or the name of an error.
    pub(super) error: String,
    pub(super) facts: BTreeMap<String, String>,
    /// The times of files that the step looked at, by a prefix of facts.
    times: BTreeMap<String, Times>,
}

/// The times of a file, which two directories never agree in; whether they move is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Times {
    ino: u64,
    mtime: (i64, u32),
    ctime: (i64, u32),
}

/// The times that one directory has shown last.
#[derive(Debug, Default)]
pub(super) struct Seen {
    by_ino: BTreeMap<u64, Times>,
}

impl Outcome {
    pub(super) fn ok() -> Self {
        Self { error: "ok".into(), ..Self::default() }
    }

    pub(super) fn error(errno: Errno) -> Self {
        Self { error: errno_name(errno), ..Self::default() }
    }

    /// The step names a descriptor or a process that is not there.
    pub(super) fn nothing() -> Self {
        Self { error: "nothing to do".into(), ..Self::default() }
    }

    pub(super) fn with(mut self, fact: &str, value: impl ToString) -> Self {
        self.facts.insert(fact.to_owned(), value.to_string());
        self
    }

    /// Adds the attributes of a file; `prefix` goes before the names of the facts.
    pub(super) fn with_attributes(mut self, prefix: &str, attr: &Attr) -> Self {
        let is_directory = attr.kind() == FileType::Directory;
        let mut fact = |name: &str, value: String| self.facts.insert(format!("{prefix}{name}"), value);
        fact("mode", format!("{:o}", attr.mode & !0o6000));
        fact("set-uid", (attr.mode & 0o4000 != 0).to_string());
        // The bit means a group to run as with the group's right to execute only; clients differ in it without.
        fact("set-gid", (attr.mode & 0o2010 == 0o2010).to_string());
        fact("set-gid-without-group-execute", (attr.mode & 0o2010 == 0o2000).to_string());
        fact("uid", attr.uid.to_string());
        fact("gid", attr.gid.to_string());
        fact("nlink", attr.nlink.to_string());
        if !is_directory {
            fact("size", attr.size.to_string());
            fact("has-blocks", (attr.blocks > 0).to_string());
        }
        let flat = |time: Time| (time.sec, time.nsec);
        let times = Times { ino: attr.ino, mtime: flat(attr.mtime), ctime: flat(attr.ctime) };
        self.times.insert(prefix.to_owned(), times);
        self
    }

    /// Adds a lock that was found, and what is known of its owner.
    pub(super) fn with_lock(self, found: Lock, pid: i32) -> Self {
        match found.kind {
            LockKind::None => self.with("lock", "none"),
            kind => {
                let owner = if pid == -1 { "a description" } else { "a process" };
                let outcome = self.with("lock", format!("{kind:?} {}+{}", found.start, found.len));
                outcome.with("lock-owner", owner).with("lock-owner-is-known", pid != 0)
            }
        }
    }

    /// Turns times into facts: whether they have moved since they were seen last. Returns once a later change has a
    /// later time.
    pub(super) fn note_times(&mut self, seen: &mut Seen) {
        for (prefix, times) in std::mem::take(&mut self.times) {
            wait_past(times.mtime.max(times.ctime));
            let Some(before) = seen.by_ino.insert(times.ino, times) else { continue };
            let moves = [("mtime-moves", before.mtime != times.mtime), ("ctime-moves", before.ctime != times.ctime)];
            self.facts.extend(moves.map(|(fact, moves)| (format!("{prefix}{fact}"), moves.to_string())));
        }
    }
}

/// Data as it is shown and compared: letters as they are, repeated ones counted.
pub(super) fn shown(data: &[u8]) -> String {
    let runs = data.chunk_by(|a, b| a == b);
    runs.map(|run| {
        let byte = run[0].escape_ascii();
        if run.len() > 3 { format!("{byte}*{} ", run.len()) } else { byte.to_string().repeat(run.len()) }
    })
    .collect()
}

/// Waits until the clock of file systems, which moves in steps of some milliseconds, has passed `time`.
fn wait_past((sec, nsec): (i64, u32)) {
    loop {
        let now = clock_gettime(ClockId::RealtimeCoarse);
        // What is further in the future was set by hand.
        if (now.tv_sec, now.tv_nsec) > (sec, nsec.into()) || sec > now.tv_sec + 1 {
            return;
        }
        thread::yield_now();
    }
}

fn errno_name(errno: Errno) -> String {
    let known = [
        (Errno::PERM, "EPERM"),
        (Errno::NOENT, "ENOENT"),
        (Errno::IO, "EIO"),
        (Errno::BADF, "EBADF"),
        (Errno::AGAIN, "EAGAIN"),
        (Errno::ACCESS, "EACCES"),
        (Errno::BUSY, "EBUSY"),
        (Errno::EXIST, "EEXIST"),
        (Errno::XDEV, "EXDEV"),
        (Errno::NOTDIR, "ENOTDIR"),
        (Errno::ISDIR, "EISDIR"),
        (Errno::INVAL, "EINVAL"),
        (Errno::NOTTY, "ENOTTY"),
        (Errno::TXTBSY, "ETXTBSY"),
        (Errno::FBIG, "EFBIG"),
        (Errno::NOEXEC, "ENOEXEC"),
        (Errno::DEADLK, "EDEADLK"),
        (Errno::NOLCK, "ENOLCK"),
        (Errno::NOSYS, "ENOSYS"),
        (Errno::NOTEMPTY, "ENOTEMPTY"),
        (Errno::LOOP, "ELOOP"),
        (Errno::NODATA, "ENODATA"),
        (Errno::OPNOTSUPP, "EOPNOTSUPP"),
        (Errno::STALE, "ESTALE"),
        (Errno::NOTCONN, "ENOTCONN"),
    ];
    let name = known.iter().find(|(known, _)| *known == errno).map(|(_, name)| (*name).to_owned());
    name.unwrap_or_else(|| format!("errno-{}", errno.raw_os_error()))
}
