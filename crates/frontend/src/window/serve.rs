//! The thread that handles a back end's requests according to the rules.

use std::{
    collections::{BTreeMap, VecDeque},
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
};

use anyhow::{bail, ensure};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{FileType, OFlags, fcntl_getfl, fstat},
};

use super::{
    super::turn::Turn,
    Counts, Hold, Mapping, Reaction, Rules,
    area::Area,
    requests::{self, Map, Request, What},
};

/// The window's region id: the first shared-memory region.
const REGION: u8 = 0;
/// The minimum alignment of a mapping.
const PAGE_LEN: u64 = 4096;

pub(super) struct Shared {
    pub(super) area: Area,
    pub(super) len: u64,
    pub(super) rules: Rules,
    /// Held while a single-threaded front end works.
    pub(super) turn: Arc<Turn>,
    pub(super) state: Mutex<State>,
    /// Notified when a hold ends or a request arrives.
    pub(super) changed: Condvar,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) mappings: BTreeMap<u64, Mapped>,
    pub(super) reactions: VecDeque<Reaction>,
    pub(super) hold: Option<Hold>,
    pub(super) counts: Counts,
    /// How a request is currently held.
    pub(super) held: Option<Hold>,
    /// Why the rules refused requests; refusals by a [`Reaction`] are not included.
    pub(super) refusals: Vec<String>,
    /// Number of refused requests that the back end had sent before it could know of a reset.
    pub(super) stale_refusals: u64,
    pub(super) most_mappings: usize,
    /// A request was received and is not finished.
    is_in_hand: bool,
    /// The next request to be handled was sent before a reset of the device.
    is_stale: bool,
    pub(super) is_ending: bool,
    pub(super) is_closed: bool,
}

pub(super) struct Mapped {
    pub(super) mapping: Mapping,
    pub(super) fd: OwnedFd,
    /// The guest can see the mapping.
    pub(super) is_shown: bool,
}

impl Shared {
    pub(super) fn new(len: u64, rules: Rules, turn: Arc<Turn>) -> anyhow::Result<Self> {
        let area = Area::reserve(usize::try_from(len)?)?;
        Ok(Self { area, len, rules, turn, state: Mutex::default(), changed: Condvar::new() })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Serves requests until the channel is closed.
    pub(super) fn serve(&self, stream: &UnixStream) {
        loop {
            let goes_on = match self.receive(stream) {
                Ok(Some(request)) => self.answer(stream, &request),
                Ok(None) => false,
                Err(error) => {
                    self.lock().refusals.push(error.to_string());
                    false
                }
            };
            if !goes_on {
                break;
            }
        }
        // The other side may have closed it already.
        let _ = stream.shutdown(std::net::Shutdown::Both);
        self.lock().is_closed = true;
        self.changed.notify_all();
    }

    /// Ends all mappings, as a reset of the device does.
    pub(super) fn drop_mappings(&self, stream: &UnixStream) {
        let mut state = self.lock();
        for (offset, mapped) in std::mem::take(&mut state.mappings) {
            self.area.unmap(offset, mapped.mapping.len).expect("what is mapped lies within the window");
        }
        state.is_stale = state.is_in_hand || is_readable(stream, false);
    }

    fn receive(&self, stream: &UnixStream) -> io::Result<Option<Request>> {
        is_readable(stream, true);
        // A request arrives in one piece, so reading it does not block while the lock is held.
        let mut state = self.lock();
        let request = requests::receive(stream)?;
        state.is_in_hand = true;
        Ok(request)
    }

    /// Handles `request`. Returns whether the channel stays open.
    fn answer(&self, stream: &UnixStream, request: &Request) -> bool {
        self.wait_while(Hold::Requests);
        let turn = self.rules.is_single_threaded.then(|| self.turn.take());
        self.show_all();
        let reaction = match request.what {
            What::Map(_) | What::Unmap { .. } => self.lock().reactions.pop_front().unwrap_or(Reaction::Serve),
            _ => Reaction::Serve,
        };
        let is_served = !matches!(reaction, Reaction::Refuse | Reaction::Ignore | Reaction::Close);
        let done = if is_served { self.perform(&request.what) } else { Ok(false) };
        let mut state = self.lock();
        state.is_in_hand = false;
        let is_stale = std::mem::take(&mut state.is_stale);
        match &done {
            Err(_) if is_stale => state.stale_refusals += 1,
            Err(reason) => state.refusals.push(format!("{reason:#}")),
            Ok(_) => {}
        }
        drop(state);
        drop(turn);
        self.changed.notify_all();
        self.wait_while(Hold::Answers);
        let closes = matches!(reaction, Reaction::Close | Reaction::ServeAndClose)
            || done.is_err() && self.rules.closes_at_refusal;
        let is_silent = matches!(reaction, Reaction::Ignore | Reaction::ServeUnanswered);
        if closes || is_silent {
            return !closes;
        }
        requests::reply(stream, request, done.unwrap_or(false)).is_ok()
    }

    fn wait_while(&self, hold: Hold) {
        let mut state = self.lock();
        state.held = Some(hold);
        self.changed.notify_all();
        while state.hold == Some(hold) && !state.is_ending {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.held = None;
    }

    /// Makes mappings visible that the guest cannot see yet.
    fn show_all(&self) {
        for mapped in self.lock().mappings.values_mut().filter(|mapped| !mapped.is_shown) {
            self.show(mapped);
        }
    }

    fn show(&self, mapped: &mut Mapped) {
        let Mapping { offset, len, file_offset, is_writable, .. } = mapped.mapping;
        let is_writable = is_writable || !self.rules.maps_read_only;
        self.area
            .map(offset, len, mapped.fd.as_fd(), file_offset, is_writable)
            .expect("the request was checked, and the descriptor is open for what is wanted");
        mapped.is_shown = true;
    }

    /// Carries out `what`. Returns false if it fails as expected.
    ///
    /// # Errors
    /// If the request violates the rules.
    fn perform(&self, what: &What) -> anyhow::Result<bool> {
        match what {
            What::Map(request) => self.map(request).map(|()| true),
            What::Unmap { region, offset, len } => self.unmap(*region, *offset, *len).map(|()| true),
            What::Remove => {
                self.lock().counts.barriers += 1;
                // There are no shared objects.
                Ok(false)
            }
            What::Other(what) => bail!("{what}"),
        }
    }

    fn map(&self, request: &Map) -> anyhow::Result<()> {
        let mut state = self.lock();
        state.counts.maps += 1;
        let (offset, len) = (request.offset, request.len);
        self.check_place(request.region, offset, len)?;
        ensure!(
            request.file_offset.is_multiple_of(PAGE_LEN),
            "map from the unaligned offset {} of a file",
            request.file_offset
        );
        let stat = fstat(&request.file)?;
        let (size, is_file) =
            (stat.st_size.cast_unsigned(), FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile);
        ensure!(is_file, "map of a file that is not regular");
        let end = request.file_offset.checked_add(len);
        ensure!(
            self.rules.maps_beyond_end || end.is_some_and(|end| end <= size),
            "map of {len} bytes from {} of a file of {size}",
            request.file_offset
        );
        let access = fcntl_getfl(&request.file)? & OFlags::RWMODE;
        ensure!(access == OFlags::RDWR || self.rules.takes_read_only_files, "map of a file open as {access:?}");
        ensure!(access == OFlags::RDWR || !request.is_writable, "writable map of a file open as {access:?}");
        let overlapped: Vec<u64> = state
            .mappings
            .range(..offset + len)
            .filter(|(at, old)| *at + old.mapping.len > offset)
            .map(|(at, _)| *at)
            .collect();
        if self.rules.replaces {
            let is_whole = |at: &&u64| **at < offset || **at + state.mappings[at].mapping.len > offset + len;
            ensure!(overlapped.iter().find(is_whole).is_none(), "map of {len} bytes at {offset} over part of another");
            overlapped.iter().for_each(|at| drop(state.mappings.remove(at)));
        } else {
            ensure!(overlapped.is_empty(), "map of {len} bytes at {offset} over {overlapped:?}");
        }
        ensure!(state.mappings.len() < self.rules.mappings_max, "more than {} mappings", self.rules.mappings_max);
        let mapping = Mapping {
            offset,
            len,
            file_offset: request.file_offset,
            is_writable: request.is_writable,
            file: (stat.st_dev, stat.st_ino),
        };
        let mut mapped = Mapped { mapping, fd: request.file.try_clone()?, is_shown: false };
        if !self.rules.shows_late {
            self.show(&mut mapped);
        }
        state.mappings.insert(offset, mapped);
        state.most_mappings = state.most_mappings.max(state.mappings.len());
        Ok(())
    }

    fn unmap(&self, region: u8, offset: u64, len: u64) -> anyhow::Result<()> {
        let mut state = self.lock();
        state.counts.unmaps += 1;
        self.check_place(region, offset, len)?;
        let is_one = state.mappings.get(&offset).is_some_and(|mapped| mapped.mapping.len == len);
        ensure!(is_one, "unmap of {len} bytes at {offset}, which is not a mapping");
        state.mappings.remove(&offset);
        self.area.unmap(offset, len)?;
        Ok(())
    }

    fn check_place(&self, region: u8, offset: u64, len: u64) -> anyhow::Result<()> {
        ensure!(region == REGION, "there is no region {region}");
        ensure!(
            offset.is_multiple_of(PAGE_LEN) && len.is_multiple_of(PAGE_LEN) && len > 0,
            "{len} bytes at {offset} are not whole pages"
        );
        let end = offset.checked_add(len);
        ensure!(end.is_some_and(|end| end <= self.len), "{len} bytes at {offset} of a window of {}", self.len);
        Ok(())
    }
}

/// Returns whether a request, or the end of the channel, can be received.
fn is_readable(stream: &UnixStream, waits: bool) -> bool {
    let timeout = Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut fds = [PollFd::new(stream, PollFlags::IN)];
    loop {
        match poll(&mut fds, if waits { None } else { Some(&timeout) }) {
            Err(rustix::io::Errno::INTR) => {}
            other => return other.is_ok_and(|count| count > 0),
        }
    }
}
