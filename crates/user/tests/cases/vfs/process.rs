//! One process: who it is, where it stands, what it has open.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
};

use parking_lot::Mutex;
use transom_conformance::client::{Errno, Handle, Identity, OFlags};
use transom_guest::session::Caller;
use transom_wire::{NodeId, attr::Attr, ops::init::InitFlags, ops::setattr::SetattrIn, ops::setattr::SetattrValid};
use zerocopy::FromZeros as _;

use super::{
    Vfs,
    errno::{Result, from_guest},
    file::OpenFile,
    rights::{self, EXECUTE, WRITE},
    walk::{DirPath, Last},
};

/// A process of the guest.
pub(crate) struct Process<'v> {
    pub(crate) vfs: &'v Vfs,
    pub(crate) cwd: DirPath,
    pub(crate) who: Identity,
    pub(crate) pid: u32,
    umask: AtomicU32,
    files: Mutex<BTreeMap<u64, Arc<OpenFile>>>,
    next_handle: AtomicU64,
}

impl<'v> Process<'v> {
    /// The first process, with nothing open.
    pub(crate) fn first(vfs: &'v Vfs, cwd: DirPath, who: Identity) -> Self {
        let files = Mutex::default();
        Self { vfs, cwd, who, pid: vfs.next_pid(), umask: 0o022.into(), files, next_handle: 3.into() }
    }

    /// A child of another identity, with the same files open.
    pub(crate) fn child(&self, who: &Identity) -> Self {
        Self {
            vfs: self.vfs,
            cwd: self.cwd.clone(),
            who: who.clone(),
            pid: self.vfs.next_pid(),
            umask: self.umask.load(Ordering::Relaxed).into(),
            files: Mutex::new(self.files.lock().clone()),
            next_handle: self.next_handle.load(Ordering::Relaxed).into(),
        }
    }

    pub(crate) fn caller(&self) -> Caller<'static> {
        Caller {
            uid: self.who.uid,
            gid: self.who.gid,
            pid: self.pid,
            umask: self.umask.load(Ordering::Relaxed),
            queue: self.pid as u16,
            ..Caller::default()
        }
    }

    /// The caller of what creates in `directory`, who may write there as one of its group only.
    pub(crate) fn creator(&self, directory: &Attr) -> Caller<'static> {
        let gid = directory.gid.get();
        let group = (gid != self.who.gid && self.who.groups.contains(&gid)).then_some(gid);
        Caller { group, ..self.caller() }
    }

    pub(crate) fn set_umask(&self, mask: u32) -> u32 {
        self.umask.swap(mask & 0o777, Ordering::Relaxed)
    }

    pub(crate) fn has(&self, feature: InitFlags) -> bool {
        self.vfs.session.negotiated().flags.contains(feature)
    }

    pub(crate) fn check(&self, attr: &Attr, wanted: u32) -> Result<()> {
        rights::check(&self.who, attr, wanted)
    }

    pub(crate) fn add_file(&self, file: OpenFile) -> Handle {
        let number = self.next_handle.fetch_add(1, Ordering::Relaxed);
        self.files.lock().insert(number, Arc::new(file));
        Handle(number)
    }

    pub(crate) fn file(&self, handle: Handle) -> Result<Arc<OpenFile>> {
        self.files.lock().get(&handle.0).cloned().ok_or(Errno::BADF)
    }

    /// A file that is open for more than its place.
    pub(crate) fn usable(&self, handle: Handle) -> Result<Arc<OpenFile>> {
        self.file(handle).and_then(|file| if file.flags.contains(OFlags::PATH) { Err(Errno::BADF) } else { Ok(file) })
    }

    pub(crate) fn close_file(&self, handle: Handle) -> Result<()> {
        let file = self.files.lock().remove(&handle.0).ok_or(Errno::BADF)?;
        file.flush(self)
    }

    /// Closes everything, as at the end of a process.
    pub(crate) fn exit(&self) {
        for (_, file) in std::mem::take(&mut *self.files.lock()) {
            // Nobody is left to be told.
            let _ = file.flush(self);
        }
    }

    /// The directory for a new name, with its attributes. `is_directory`: of a directory, which may have a slash behind
    /// it.
    pub(crate) fn for_new(&self, path: &[u8], is_directory: bool) -> Result<(DirPath, Vec<u8>, Attr)> {
        let (place, last) = self.find_parent(path)?;
        let Last::Name(name, has_slash) = last else { return Err(Errno::EXIST) };
        if self.lookup(&place, &name)?.is_some() {
            return Err(Errno::EXIST);
        }
        if has_slash && !is_directory {
            return Err(Errno::NOENT);
        }
        let directory = place.node().attr()?;
        self.check(&directory, WRITE | EXECUTE)?;
        Ok((place, name, directory))
    }

    /// The mode of a new file as it is to be sent: the server masks it, or we do.
    pub(crate) fn new_mode(&self, mode: u32) -> u32 {
        if self.has(InitFlags::DONT_MASK) { mode } else { mode & !self.caller().umask }
    }

    /// SETATTR of what `valid` names in `change`.
    pub(crate) fn set_attributes(&self, node: NodeId, valid: SetattrValid, change: SetattrIn) -> Result<()> {
        let change = SetattrIn { valid: valid.bits().into(), ..change };
        self.vfs.session.setattr(&self.caller(), node, &change).map(drop).map_err(from_guest)
    }

    /// Takes set-id bits away where a change of the data by this process does that and the server leaves it to us.
    ///
    /// True where the server is to be told to do it.
    pub(crate) fn drop_set_id(&self, node: NodeId, attr: &Attr) -> Result<bool> {
        if !rights::loses_set_id(&self.who, attr) {
            return Ok(false);
        }
        if self.has(InitFlags::HANDLE_KILLPRIV_V2) {
            return Ok(true);
        }
        let mut mode = attr.mode.get() & !rights::SET_UID;
        if mode & 0o010 != 0 {
            mode &= !rights::SET_GID;
        }
        let change = SetattrIn { mode: mode.into(), ..SetattrIn::new_zeroed() };
        self.set_attributes(node, SetattrValid::MODE, change)?;
        Ok(false)
    }
}
