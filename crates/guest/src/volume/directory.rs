//! Directory streams.

use alloc::{sync::Arc, vec, vec::Vec};

use transom_wire::{
    Handle, Name,
    ops::{init::InitFlags, open::OpenFlags},
};

use super::{Entry, Inode, Volume, progress::Progress};
use crate::{
    Errno, Platform,
    cache::{
        CacheMode,
        directories::{Basis, Collector, Listing, Version},
    },
    ops::DirEntry,
    session::Caller,
};

/// Room for the entries of one reply, in bytes: some 150 names with their attributes, or 800 without.
const REPLY_LEN: usize = 32 << 10;

/// An open directory, read from its beginning or from a cookie; RELEASEDIR is sent when it is dropped.
///
/// In [`CacheMode::Shared`], it is opened on the server only when something is needed that is not cached.
pub struct DirectoryStream<P: Platform> {
    inode: Arc<Inode<P>>,
    /// The server's handle, once the server has opened it.
    fh: Option<Handle>,
    flags: u32,
    /// Where the next request starts.
    cookie: u64,
    progress: Progress,
    /// Entries that were received and not yet returned, the last one first.
    ready: Vec<Entry>,
    is_at_end: bool,
    /// The cached listing, and the index of the next entry.
    kept: Option<(Arc<Listing>, usize)>,
    /// The listing to be cached, if the stream has read everything from the beginning.
    collector: Option<(Collector, Basis)>,
}

impl<P: Platform> Volume<P> {
    /// Opens the directory `inode`, with the flags of open(2).
    pub fn opendir(&self, caller: &Caller<'_>, inode: &Arc<Inode<P>>, flags: u32) -> Result<DirectoryStream<P>, Errno> {
        let mut stream = DirectoryStream {
            inode: Arc::clone(inode),
            fh: None,
            flags,
            cookie: 0,
            progress: Progress::from(0),
            ready: Vec::new(),
            is_at_end: false,
            kept: None,
            collector: None,
        };
        match self.shared.options.mode {
            CacheMode::Shared => self.recall_unchanged(&mut stream),
            CacheMode::None | CacheMode::Auto | CacheMode::Always => {
                let open_flags = stream.open(caller)?;
                self.recall(caller, &mut stream, open_flags);
            }
        }
        Ok(stream)
    }

    /// Uses the cached listing if the version table shows no change, or starts collecting one.
    fn recall_unchanged(&self, stream: &mut DirectoryStream<P>) {
        let (names_changes, asked_at) = (stream.inode.names_changes(), self.shared.asked_at());
        let listing = stream.inode.listing.lock().clone();
        match listing.filter(|listing| listing.is_unchanged(names_changes, &stream.inode.judge())) {
            Some(listing) => stream.kept = Some((listing, 0)),
            None => {
                let version = Version::Until(self.shared.validity(asked_at, 0, 0));
                stream.collector = Some((Collector::new(), Basis { names_changes, version }));
            }
        }
    }

    /// Uses the cached listing if it is valid, or starts collecting one if it may be cached.
    fn recall(&self, caller: &Caller<'_>, stream: &mut DirectoryStream<P>, open_flags: OpenFlags) {
        let mode = self.shared.options.mode;
        let keeps = OpenFlags::CACHE_DIR.union(OpenFlags::KEEP_CACHE);
        if mode == CacheMode::None || mode == CacheMode::Auto && !open_flags.contains(keeps) {
            let dropped = stream.inode.listing.lock().take();
            return drop(dropped);
        }
        let names_changes = stream.inode.names_changes();
        // A directory whose attributes cannot be read is not cached; reading it returns the error.
        let Ok(attr) = self.getattr(caller, &stream.inode) else { return };
        let basis = Basis { names_changes, version: Version::Mtime(attr.mtime.get(), attr.mtimensec.get()) };
        let listing = stream.inode.listing.lock().clone();
        match listing.filter(|listing| listing.basis == basis) {
            Some(listing) => stream.kept = Some((listing, 0)),
            None => stream.collector = Some((Collector::new(), basis)),
        }
    }

    /// Returns the next entry, or `None` at the end.
    ///
    /// Caches the names that were looked up, as [`Self::lookup`] does. Errors: also EIO if the server leads the stream
    /// back to an earlier position, so that it would never end.
    pub fn readdir(&self, caller: &Caller<'_>, stream: &mut DirectoryStream<P>) -> Result<Option<Entry>, Errno> {
        if let Some((listing, next)) = &mut stream.kept {
            let entry = listing.entries.get(*next).cloned();
            *next += usize::from(entry.is_some());
            stream.cookie = entry.as_ref().map_or(stream.cookie, |entry| entry.cookie);
            return Ok(entry);
        }
        if stream.ready.is_empty() && !stream.is_at_end {
            self.fill(caller, stream)?;
        }
        let entry = stream.ready.pop();
        match &entry {
            Some(entry) => {
                stream.cookie = entry.cookie;
                if stream.collector.as_mut().is_some_and(|(collector, _)| !collector.push(entry)) {
                    stream.collector = None;
                }
            }
            None => self.keep_listing(stream),
        }
        Ok(entry)
    }

    /// Caches what was collected, unless this guest has changed the directory since.
    fn keep_listing(&self, stream: &mut DirectoryStream<P>) {
        let Some((collector, basis)) = stream.collector.take() else { return };
        let listing = self.shared.listings.admit(collector, basis).map(Arc::new);
        if stream.inode.names_changes() == basis.names_changes {
            let displaced = core::mem::replace(&mut *stream.inode.listing.lock(), listing);
            drop(displaced);
        }
    }

    fn fill(&self, caller: &Caller<'_>, stream: &mut DirectoryStream<P>) -> Result<(), Errno> {
        if stream.inode.lacks_slot() {
            // A listing could not be judged. A directory whose attributes cannot be read can perhaps be listed.
            let _ = stream.inode.ask_attributes(caller, None);
        }
        let fh = stream.handle(caller)?;
        let asked = stream.inode.asked();
        let is_plus = self.shared.options.mode != CacheMode::None
            && self.session().negotiated().flags.contains(InitFlags::DO_READDIRPLUS);
        let mut room = vec![0; REPLY_LEN];
        let len = self.session().readdir(caller, stream.inode.nodeid(), fh, stream.cookie, is_plus, &mut room)?;
        stream.is_at_end = len == 0;
        let mut ready = Vec::new();
        for entry in self.session().entries(&room[..len], is_plus) {
            // Nothing of a partly invalid reply is returned, and an incomplete listing is not cached.
            let entry = entry.inspect_err(|_| stream.collector = None)?;
            self.keep_entry(&stream.inode, &entry, asked);
            let DirEntry { ino, off, type_, name, .. } = entry;
            ready.push(Entry { ino, cookie: off, file_type: type_, name: name.into() });
        }
        // The next request starts there.
        if ready.last().is_some_and(|last| !stream.progress.advance(last.cookie)) {
            stream.collector = None;
            return Err(self.session().impossible_eio());
        }
        ready.reverse();
        stream.ready = ready;
        Ok(())
    }

    /// Takes the reference that came with an entry, and caches its name.
    fn keep_entry(&self, directory: &Arc<Inode<P>>, found: &DirEntry<'_>, asked: super::names::Asked) {
        if let (Some(entry), Ok(name)) = (&found.entry, Name::new(found.name)) {
            // An impossible inode is not cached; looking its name up returns the error.
            let _ = self.take_entry(directory, directory.key(name), entry, asked);
        } else if let Some(entry) = &found.entry {
            self.session().forget(entry.nodeid.into(), 1);
        }
    }
}

impl<P: Platform> DirectoryStream<P> {
    /// Returns the directory.
    pub fn inode(&self) -> &Arc<Inode<P>> {
        &self.inode
    }

    /// Opens the directory on the server. Returns the flags of the open directory.
    fn open(&mut self, caller: &Caller<'_>) -> Result<OpenFlags, Errno> {
        let open = self.inode.shared.session.opendir(caller, self.inode.nodeid(), self.flags)?;
        self.fh = Some(open.fh.into());
        Ok(OpenFlags::from_bits_truncate(open.open_flags.get()))
    }

    /// Returns the server's handle; opens the directory if that has not been necessary so far.
    fn handle(&mut self, caller: &Caller<'_>) -> Result<Handle, Errno> {
        match self.fh {
            Some(fh) => Ok(fh),
            None => self.open(caller).map(|_| self.fh.unwrap_or_default()),
        }
    }

    /// Returns the position of the next entry: 0, or the cookie of the last one returned.
    pub fn position(&self) -> u64 {
        self.cookie
    }

    /// Continues after the entry with this cookie, or at the beginning for 0, in which case the directory is read
    /// again.
    pub fn seek(&mut self, cookie: u64) {
        self.ready.clear();
        self.cookie = cookie;
        self.progress = Progress::from(cookie);
        self.is_at_end = false;
        self.collector = None;
        self.kept = self.kept.take().and_then(|(listing, _)| {
            let behind = listing.entries.iter().position(|entry| entry.cookie == cookie).map(|at| at + 1);
            let next = if cookie == 0 { Some(0) } else { behind };
            next.map(|next| (listing, next))
        });
        if cookie == 0 && self.inode.shared.options.mode == CacheMode::Shared {
            let (names_changes, judge) = (self.inode.names_changes(), self.inode.judge());
            self.kept = self.kept.take().filter(|(listing, _)| listing.is_unchanged(names_changes, &judge));
        }
    }

    /// Makes the directory's names durable.
    pub fn fsync(&self, caller: &Caller<'_>, is_data_only: bool) -> Result<(), Errno> {
        let flags = if is_data_only { transom_wire::ops::fsync::FSYNC_FDATASYNC } else { 0 };
        let (session, nodeid) = (&self.inode.shared.session, self.inode.nodeid());
        let Some(fh) = self.fh else {
            let fh = session.opendir(caller, nodeid, self.flags)?.fh.into();
            let result = session.fsyncdir(caller, nodeid, fh, flags);
            let _ = session.releasedir(caller, nodeid, fh, self.flags);
            return result;
        };
        session.fsyncdir(caller, nodeid, fh, flags)
    }
}

impl<P: Platform> Drop for DirectoryStream<P> {
    fn drop(&mut self) {
        if let Some(fh) = self.fh {
            // No caller is left to return an error to.
            let _ = self.inode.shared.session.releasedir(&Caller::default(), self.inode.nodeid(), fh, self.flags);
        }
    }
}
