//! Decides which files the guest maps, and through which descriptor the front end maps them.

use std::{
    collections::HashMap,
    fmt,
    os::fd::{AsFd, OwnedFd},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use rustix::fs::{AtFlags, FileType, OFlags, Statx, StatxFlags, fstat, fstatfs};
use transom_wire::{
    NodeId,
    attr::{Attr, AttrFlags},
    ops::init::InitFlags,
};

use super::Passthrough;
use crate::{
    Errno,
    server::End,
    sysfd::stat,
    window::{DaxPolicy, MappedFile, PaddedFiles, RANGE_LEN, Window},
};

/// Linux up to 6.12 cannot write back pages of a mapped file unless the file's block size is the page size.
const BLOCK_SIZE: u32 = 4096;

/// How files are mapped into a window.
#[derive(Clone)]
pub struct Dax {
    /// The window.
    pub window: Arc<Window>,
    /// Selects the files that the guest is told to map.
    pub policy: DaxPolicy,
    /// For front ends that cannot map past the end of a file. Without it, the last part of such a file is not mapped.
    pub padded: Option<Arc<dyn PaddedFiles>>,
    /// Whether to keep others from truncating a mapped file, if possible.
    pub guards: bool,
    has_warned: Arc<AtomicBool>,
    support: Arc<KnownSupport>,
}

/// Results of probing the host's file systems, by device number.
type KnownSupport = Mutex<HashMap<(u32, u32), DaxSupport>>;

/// The kind of mapping that a file system supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DaxSupport {
    /// None: a mapping may differ from what is read, or change under us.
    None,
    /// Mappings up to the end of a file.
    UpToEnd,
    /// Mappings past the end of a file.
    PastEnd,
}

impl Dax {
    /// Creates a configuration that maps files into `window`.
    pub fn new(window: Arc<Window>, policy: DaxPolicy, padded: Option<Arc<dyn PaddedFiles>>) -> Self {
        Self { window, policy, padded, guards: true, has_warned: Arc::default(), support: Arc::default() }
    }

    /// Allows others to truncate mapped files.
    pub fn without_guards(self) -> Self {
        Self { guards: false, ..self }
    }

    /// Guards a file against truncation while the result lives. Logs once if that is not possible.
    fn guard(&self, file: impl AsFd, name: &str) -> Option<Box<dyn Send + Sync>> {
        let padded = self.padded.as_ref().filter(|_| self.guards)?;
        let guard = padded.guard(file.as_fd());
        if let Err(error) = &guard
            && !self.has_warned.swap(true, Ordering::Relaxed)
        {
            tracing::warn!(%error, name, "mapped files cannot be guarded against truncation by others here");
        }
        guard.ok()
    }

    /// Returns whether this front end supports a window for the share.
    pub fn is_possible(window: &Window, is_share_readonly: bool) -> bool {
        window.front_end().maps_read_only || !is_share_readonly
    }

    /// Returns whether the front end can map.
    pub(super) fn is_open(&self) -> bool {
        self.window.is_open()
    }

    /// Returns whether some range of the inode is mapped.
    pub(super) fn has_node(&self, nodeid: NodeId) -> bool {
        self.window.has_node(nodeid)
    }

    pub(super) fn begin_session(&self) {
        if !self.is_open() {
            tracing::warn!(
                "the front end has no window (VHOST_USER_PROTOCOL_F_SHMEM): the share is served without DAX"
            );
        }
    }

    pub(super) fn end_session(&self, end: End) {
        match end {
            End::Destroy => self.window.clear(),
            End::Init => self.window.clear_for_init(),
            // The caller that resets the device tells the window.
            End::Reset => {}
        }
    }

    fn support(&self, stat: &Statx, find_out: impl FnOnce() -> DaxSupport) -> DaxSupport {
        let device = (stat.stx_dev_major, stat.stx_dev_minor);
        let known = self.support.lock().unwrap_or_else(PoisonError::into_inner).get(&device).copied();
        known.unwrap_or_else(|| {
            let support = find_out();
            self.support.lock().unwrap_or_else(PoisonError::into_inner).insert(device, support);
            support
        })
    }
}

impl fmt::Debug for Dax {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { window, policy, padded, .. } = self;
        write!(f, "Dax({window:?}, {policy:?}, padded: {})", padded.is_some())
    }
}

impl Passthrough {
    /// Sets the flag and block size that a guest with a window needs in the attributes of the inode behind `fd`.
    pub(super) fn mark_dax(&self, fd: impl AsFd, stat: &Statx, attr: &mut Attr) {
        let Some(dax) = &self.dax else { return };
        let is_regular = FileType::from_raw_mode(stat.stx_mode.into()) == FileType::RegularFile;
        if !is_regular || !self.has(InitFlags::MAP_ALIGNMENT) {
            return;
        }
        attr.blksize = BLOCK_SIZE.into();
        if self.has(InitFlags::HAS_INODE_DAX) && dax.policy.takes(stat.stx_size) && self.can_map(dax, fd, stat) {
            attr.flags = (attr.flags.get() | AttrFlags::DAX.bits()).into();
        }
    }

    /// Returns whether the guest treats the file behind `fd` as one that it maps.
    ///
    /// The guest decided that when it first saw the inode. If the file has crossed the policy's size limit since, the
    /// answer is wrong, which costs the bypass of the guest's cache and nothing else.
    pub(super) fn is_taken_for_dax(&self, nodeid: NodeId, fd: impl AsFd) -> bool {
        let Some(dax) = self.dax.as_ref().filter(|_| self.has(InitFlags::MAP_ALIGNMENT)) else { return false };
        if !self.has(InitFlags::HAS_INODE_DAX) || dax.has_node(nodeid) {
            return true;
        }
        let stat = stat::statx(&fd, AtFlags::empty(), StatxFlags::BASIC_STATS);
        stat.is_ok_and(|stat| dax.policy.takes(stat.stx_size) && self.can_map(dax, &fd, &stat))
    }

    /// Returns whether every part of a regular file can be mapped.
    fn can_map(&self, dax: &Dax, fd: impl AsFd, stat: &Statx) -> bool {
        let needs_write = !dax.window.front_end().maps_read_only;
        if needs_write && !self.proc_fds.may_write(&fd) {
            return false;
        }
        match dax.support(stat, || self.explore(dax, &fd)) {
            DaxSupport::PastEnd => true,
            DaxSupport::UpToEnd => stat.stx_size > 0 && stat.stx_size.is_multiple_of(RANGE_LEN),
            DaxSupport::None => false,
        }
    }

    /// Probes, with the file behind `fd`, what its file system supports.
    fn explore(&self, dax: &Dax, fd: impl AsFd) -> DaxSupport {
        if fstatfs(&fd).is_ok_and(|stat| is_unfit(stat.f_type)) {
            return DaxSupport::None;
        }
        if dax.window.front_end().maps_beyond_end {
            return DaxSupport::PastEnd;
        }
        let Some(padded) = &dax.padded else { return DaxSupport::UpToEnd };
        let viewed = self
            .inodes
            .with_room(|| self.proc_fds.reopen(&fd, OFlags::RDWR))
            .and_then(|file| padded.view(file.as_fd()));
        match viewed {
            Ok(_) => DaxSupport::PastEnd,
            Err(error) => {
                tracing::warn!(%error, "only whole 2 MiB ranges of files on this file system can be mapped");
                DaxSupport::UpToEnd
            }
        }
    }

    /// Opens a file for the front end to map.
    ///
    /// # Errors
    ///
    /// EROFS or EACCES if the guest must not write the file and the front end could not prevent it, EISDIR and others
    /// if it is not a regular file, EOPNOTSUPP on a file system where a mapping may differ from what is read.
    pub(super) fn open_to_map(&self, dax: &Dax, nodeid: NodeId, wants_write: bool) -> Result<MappedFile, Errno> {
        let front_end = dax.window.front_end();
        let held = self.handles.hold()?;
        self.inodes.balance();
        let open = |mode: OFlags| self.open_again(nodeid, mode | OFlags::NONBLOCK);
        let writable = match self.config.readonly {
            true => Err(Errno::ROFS),
            false if front_end.opens_as_asked && !wants_write => Err(Errno::ACCESS),
            // Writable from the beginning if allowed: a read-only mapping cannot become writable without a gap.
            false => open(OFlags::RDWR),
        };
        let (file, is_writable) = match writable {
            Ok(file) => (file, true),
            Err(Errno::ROFS | Errno::ACCESS | Errno::PERM | Errno::TXTBSY)
                if front_end.maps_read_only && !wants_write =>
            {
                (open(OFlags::RDONLY)?, false)
            }
            Err(errno) => return Err(errno),
        };
        if FileType::from_raw_mode(fstat(&file)?.st_mode) != FileType::RegularFile {
            return Err(Errno::NODEV);
        }
        if is_unfit(fstatfs(&file)?.f_type) {
            return Err(Errno::OPNOTSUPP);
        }
        let name = self.proc_fds.name(&file);
        // The view comes first: a view opened before the guard costs nothing when it is mapped.
        let (view, is_padded) = pad(dax, &file, is_writable)?;
        let guard = dax.guard(&file, &name);
        let file = view.unwrap_or(file);
        MappedFile::new(nodeid, name, file, is_writable, is_padded, Box::new((held, guard)))
    }
}

/// Returns a descriptor for `file` that can be mapped past its end, if the front end needs one and there is one.
fn pad(dax: &Dax, file: &OwnedFd, is_writable: bool) -> Result<(Option<OwnedFd>, bool), Errno> {
    match &dax.padded {
        Some(padded) if is_writable && !dax.window.front_end().maps_beyond_end => match padded.view(file.as_fd()) {
            Ok(view) => Ok((Some(view), true)),
            Err(Errno::OPNOTSUPP) => Ok((None, false)),
            Err(errno) => Err(errno),
        },
        _ => Ok((None, false)),
    }
}

/// Returns whether files of this file system change under a mapping (copy-up), or its mappings are not coherent with
/// other clients.
fn is_unfit(magic: rustix::fs::FsWord) -> bool {
    const OVERLAY: u32 = 0x794c_7630;
    const NFS: u32 = 0x6969;
    const FUSE: u32 = 0x6573_5546;
    const CIFS: u32 = 0xff53_4d42;
    const SMB2: u32 = 0xfe53_4d42;
    const V9FS: u32 = 0x0102_1997;
    const CEPH: u32 = 0x00c3_6400;
    const AFS: u32 = 0x5346_414f;
    matches!(magic as u32, OVERLAY | NFS | FUSE | CIFS | SMB2 | V9FS | CEPH | AFS)
}
