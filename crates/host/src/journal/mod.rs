//! What has to survive the process that serves a session, in memory that another process can go on with.
//!
//! It has [slots] for the requests in flight, and a log of [records](record): what the guest knows, has open and has
//! locked. [`Session`] is what a log amounts to. A record is written after the log's end first, and then one store
//! moves the end. So there are no torn records: a death in between leaves the log as it was.
//!
//! When the log has doubled, what it amounts to is written into the other half of the memory, and one store switches
//! to that. Changes of requests that are still being served are copied as they are, since they may have to be undone,
//! up to [`PENDING_LEN_MAX`].
//!
//! A guest decides how much it knows and has open. If that does not fit, the journal gives up until the next session:
//! the process goes on, and its death ends the session.
//!
//! Lock: its own, under which no other is taken and no system call is made, except to give memory back.

mod area;
mod intent;
mod record;
mod session;
mod slots;

#[cfg(test)]
mod journal_test;

use std::{
    collections::HashSet,
    io,
    os::fd::OwnedFd,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use hashbrown::HashMap;

use area::Area;
pub(crate) use intent::{FileId, Intent};
pub(crate) use record::Record;
pub(crate) use session::{Known, Opened, Session};
pub use slots::{Left, QueueSlots, Stage};

/// Where the word is that says which half the log is in, by its highest bit, and its length.
const END_AT: usize = 0;
const QUEUES_AT: usize = 4096;
/// Room for the log, twice. 5 million inodes take 500 MB. Little in tests, which fill it.
const HALF_LEN: usize = if cfg!(test) { 4 << 20 } else { 1 << 30 };
/// The word at [`END_AT`] once the log did not fit any more.
const GIVEN_UP: u64 = u64::MAX;
/// Bytes of changes that are kept to be undone. Requests in flight have far less, unless a guest uses the number of one
/// that waits for others too; then further changes count as done.
const PENDING_LEN_MAX: usize = if cfg!(test) { 256 << 10 } else { 16 << 20 };
/// A log that is shorter is not rewritten: it costs less than a guest's ring.
const REWRITE_MIN: usize = 1 << 20;

/// The journal's memory, before and after the processes that write it.
#[derive(Debug)]
pub struct JournalFile {
    file: OwnedFd,
    queues: usize,
}

/// The journal of one process.
#[derive(Debug)]
pub struct Journal {
    area: Area,
    queues: usize,
    log: Mutex<Log>,
    /// The intents of requests that are served again.
    earlier: Mutex<HashMap<u64, Intent>>,
    undecided: AtomicU64,
    death: Option<Death>,
}

#[derive(Debug)]
struct Log {
    half: usize,
    len: usize,
    rewrite_at: usize,
    has_given_up: bool,
}

impl Log {
    fn new(half: usize, len: usize) -> Self {
        Self { half, len, rewrite_at: REWRITE_MIN, has_given_up: false }
    }
}

/// Where a test wants the process to die.
#[derive(Debug)]
struct Death {
    step: String,
    /// How often the step is survived.
    left: AtomicU64,
}

impl JournalFile {
    /// Creates the memory for a device with this many queues.
    ///
    /// # Errors
    ///
    /// If there is no memory.
    pub fn create(queues: usize) -> io::Result<Self> {
        Ok(Self { file: Area::create(len_of(queues))?, queues })
    }

    /// Opens the journal in this process, as the only one that writes it.
    ///
    /// # Errors
    ///
    /// If it cannot be mapped, or was full: then nobody knows what the session amounts to.
    pub fn open(&self) -> io::Result<Journal> {
        let area = Area::map(&self.file, len_of(self.queues))?;
        let end = area.word(END_AT);
        if end == GIVEN_UP {
            return Err(io::Error::other("the journal was full, so the session ends with the process that served it"));
        }
        let log = Log::new((end >> 63) as usize, (end << 1 >> 1) as usize);
        let (queues, log) = (self.queues, Mutex::new(log));
        Ok(Journal { area, queues, log, earlier: Mutex::default(), undecided: AtomicU64::new(0), death: None })
    }
}

fn len_of(queues: usize) -> usize {
    half_at(queues, 2)
}

fn half_at(queues: usize, half: usize) -> usize {
    QUEUES_AT + queues * slots::QUEUE_LEN + half * HALF_LEN
}

impl Journal {
    /// Lets this process die at the given step, after surviving it so often: `step:count`. For tests.
    #[must_use]
    pub fn dying_at(mut self, when: &str) -> Self {
        let (step, count) = when.split_once(':').unwrap_or((when, "0"));
        self.death = Some(Death { step: step.to_owned(), left: AtomicU64::new(count.parse().unwrap_or(0)) });
        self
    }

    /// Returns the slots of a queue.
    pub fn queue(self: &Arc<Self>, index: usize) -> QueueSlots {
        QueueSlots::new(self.clone(), QUEUES_AT + index * slots::QUEUE_LEN)
    }

    /// Returns the slots of all queues, in their order.
    pub fn queues(self: &Arc<Self>) -> impl Iterator<Item = QueueSlots> {
        (0..self.queues).map(|index| self.queue(index))
    }

    /// Returns how many requests have failed with EIO since the last call.
    fn take_undecided(&self) -> u64 {
        if self.undecided.load(Relaxed) == 0 { 0 } else { self.undecided.swap(0, Relaxed) }
    }

    pub(crate) fn count_undecided(&self) {
        self.undecided.fetch_add(1, Relaxed);
    }

    /// Appends a record.
    pub(crate) fn append(self: &Arc<Self>, record: &Record<'_>) {
        let bytes = record.encode();
        let mut log = self.lock();
        if log.has_given_up {
            // Nothing of an earlier session is left.
            let Record::Begin { .. } = record else { return };
            *log = Log::new(0, 0);
        }
        if log.len + bytes.len() > log.rewrite_at {
            self.rewrite(&mut log, |_| true);
        }
        if log.len + bytes.len() > HALF_LEN {
            return self.give_up(&mut log);
        }
        let at = half_at(self.queues, log.half) + log.len;
        self.area.write(at, &bytes);
        self.step("written");
        log.len += bytes.len();
        self.area.set_word(END_AT, (log.half as u64) << 63 | log.len as u64);
        self.step("logged");
    }

    fn give_up(&self, log: &mut Log) {
        tracing::error!(
            "the journal is full ({} bytes), because the guest knows so many files: if this process dies, the session \
             is lost; --inode-limit keeps that from happening",
            log.len
        );
        self.area.set_word(END_AT, GIVEN_UP);
        self.area.release(half_at(self.queues, 0), 2 * HALF_LEN);
        log.has_given_up = true;
    }

    /// Returns what the log amounts to, without the changes of requests that are served again. Keeps their intents.
    pub(crate) fn recover(self: &Arc<Self>) -> Session {
        let log = self.lock();
        let taken = self.taken();
        let (session, pending) = self.replay(&log, &taken);
        let mut earlier = self.earlier.lock().unwrap_or_else(PoisonError::into_inner);
        for bytes in pending {
            if let Some((Record::Intent { unique, bytes }, ..)) = Record::decode(&bytes)
                && let Some(intent) = Intent::decode(bytes)
            {
                earlier.insert(unique, intent);
            }
        }
        session
    }

    /// Replaces the log by what it amounts to, so that what was undone does not come back.
    pub(crate) fn restart(self: &Arc<Self>) {
        self.rewrite(&mut self.lock(), |record| matches!(record, Record::Intent { .. }));
    }

    /// Records what a request is about to do.
    pub(crate) fn intend(self: &Arc<Self>, unique: u64, intent: &Intent) {
        self.append(&Record::Intent { unique, bytes: &intent.encode() });
        self.step("intended");
    }

    /// Returns what a request was about to do when the process before died.
    pub(crate) fn earlier(&self, unique: u64) -> Option<Intent> {
        self.earlier.lock().unwrap_or_else(PoisonError::into_inner).remove(&unique)
    }

    /// Dies here if a test wants that.
    pub(crate) fn step(&self, name: &str) {
        if let Some(death) = &self.death
            && death.step == name
            && death.left.fetch_sub(1, Relaxed) == 0
        {
            std::process::abort();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the numbers of the requests that are being served.
    fn taken(self: &Arc<Self>) -> HashSet<u64> {
        self.queues().flat_map(|queue| queue.taken().collect::<Vec<_>>()).collect()
    }

    /// Returns what the log amounts to, and the records of requests that are being served.
    fn replay(&self, log: &Log, taken: &HashSet<u64>) -> (Session, Vec<Vec<u8>>) {
        let bytes = self.area.read(half_at(self.queues, log.half), log.len);
        let (mut session, mut pending) = (Session::default(), Vec::new());
        let mut rest = bytes.as_slice();
        let mut pending_len = 0;
        while let Some((record, whole, following)) = Record::decode(rest) {
            match record.unique() {
                Some(unique) if taken.contains(&unique) && pending_len < PENDING_LEN_MAX => {
                    session.note_numbers(&record);
                    pending.push(whole.to_vec());
                    pending_len += whole.len();
                }
                _ => session.apply(&record),
            }
            rest = following;
        }
        (session, pending)
    }

    /// Writes what the log amounts to, and those records of requests being served that are `kept`, into the other half.
    fn rewrite(self: &Arc<Self>, log: &mut Log, kept: impl Fn(&Record<'_>) -> bool) {
        let (session, pending) = self.replay(log, &self.taken());
        let half = 1 - log.half;
        let (base, mut len) = (half_at(self.queues, half), 0);
        let mut put = |bytes: &[u8]| {
            if len + bytes.len() <= HALF_LEN {
                self.area.write(base + len, bytes);
            }
            len += bytes.len();
        };
        session.describe(|record| put(&record.encode()));
        let is_kept = |bytes: &&Vec<u8>| Record::decode(bytes).is_some_and(|(record, ..)| kept(&record));
        pending.iter().filter(is_kept).for_each(|bytes| put(bytes));
        self.step("rewritten");
        if len > HALF_LEN {
            log.rewrite_at = HALF_LEN;
            return;
        }
        self.area.set_word(END_AT, (half as u64) << 63 | len as u64);
        self.area.release(half_at(self.queues, log.half), HALF_LEN);
        *log = Log { rewrite_at: (2 * len).clamp(REWRITE_MIN, HALF_LEN), ..Log::new(half, len) };
    }
}
