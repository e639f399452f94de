//! The system calls that replay a change.
//!
//! Directories are opened by handle, never by a path that somebody could redirect. While the daemon announces a change,
//! it answers the requests of these calls and performs none of them.

use std::{
    io,
    os::fd::{AsRawFd, OwnedFd},
};

use rustix::{
    fs::{
        AtFlags, FileType, Gid, Mode, OFlags, RenameFlags, StatxFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT,
        Uid, chmod, chownat, futimens, mkdirat, mknodat, open, openat, renameat, renameat_with, statx, symlinkat,
        unlinkat,
    },
    io::Errno,
    mount::{FsPickFlags, fsconfig_reconfigure, fspick},
};
use transom_wire::{
    NodeId,
    agent::{Change, Kind},
};

use crate::{directories::Directories, sys};

/// Flags to refer to a file by its nodeid.
const O_PATH: libc::c_int = libc::O_PATH | libc::O_CLOEXEC;

/// Replays one change.
///
/// # Errors
///
/// The kernel does not know the directory, has nothing to change, or refuses: then there is no event.
pub(crate) fn replay(directories: &mut Directories, change: &Change<'_>) -> io::Result<()> {
    if change.name.is_empty() && change.file_type != libc::DT_DIR {
        let file = sys::open_node(directories.root(), change.parent, O_PATH)?;
        return Ok(change_file(&file, change)?);
    }
    let parent = directories.get(change.parent)?;
    make(directories, &parent, change).inspect_err(|_| {
        // The directory itself has changed in any case.
        let _ = refresh_attributes(&parent);
    })
}

/// Makes the system call that would have caused `change`.
fn make(directories: &mut Directories, parent: &OwnedFd, change: &Change<'_>) -> io::Result<()> {
    match change.kind {
        Kind::Created => create(parent, change)?,
        Kind::Removed if change.file_type == libc::DT_DIR => {
            directories.close(&refer(parent, change.name)?);
            unlinkat(parent, change.name, AtFlags::REMOVEDIR)?;
        }
        Kind::Removed => {
            if change.new_parent != NodeId(0) {
                // The kernel may know already how many names are left, and would count one less.
                let _ = sys::open_node(directories.root(), change.new_parent, O_PATH)
                    .and_then(|file| Ok(refresh_attributes(&file)?));
            }
            unlinkat(parent, change.name, AtFlags::empty())?;
        }
        Kind::Renamed => renameat(parent, change.name, &*directories.get(change.new_parent)?, change.new_name)?,
        Kind::Exchanged => {
            let new_parent = &*directories.get(change.new_parent)?;
            renameat_with(parent, change.name, new_parent, change.new_name, RenameFlags::EXCHANGE)?;
        }
        Kind::Attributes if change.name.is_empty() => change_mode(parent)?,
        Kind::Modified | Kind::Written | Kind::Closed | Kind::Attributes | Kind::Stale => {
            let file = refer(parent, change.name);
            let is_another = |file: &OwnedFd| sys::node_of(file).is_ok_and(|nodeid| nodeid != change.new_parent);
            if change.new_parent != NodeId(0) && file.as_ref().map_or(true, is_another) {
                // The file itself, which has no name now or another one. What the kernel does not know is not stale.
                let _ = refresh_node(directories.root(), change);
            }
            change_file(&file?, change)?;
        }
    }
    Ok(())
}

/// Corrects what is cached of the file that a change names besides its name.
fn refresh_node(root: &OwnedFd, change: &Change<'_>) -> io::Result<()> {
    let file = sys::open_node(root, change.new_parent, O_PATH)?;
    if change.kind != Kind::Attributes {
        // Drops its pages.
        let _ = open_file(&file, OFlags::RDONLY);
    }
    Ok(refresh_attributes(&file)?)
}

/// Makes the system call that would have changed data or attributes of `file`, which may be `O_PATH`.
fn change_file(file: &OwnedFd, change: &Change<'_>) -> Result<(), Errno> {
    match change.kind {
        Kind::Modified => modify(file, OFlags::RDONLY),
        Kind::Written => match modify(file, OFlags::WRONLY) {
            // A program that runs cannot be opened for writing: only the event of the close is lost.
            Err(Errno::TXTBSY) => modify(file, OFlags::RDONLY),
            outcome => outcome,
        },
        // Data may have been stored through a mapping, without an event.
        Kind::Closed => refresh_attributes(&open_file(file, OFlags::WRONLY)?),
        Kind::Attributes => change_attributes(file),
        Kind::Stale => {
            if change.file_type == libc::DT_REG {
                // Drops its pages.
                let _ = open_file(file, OFlags::RDONLY);
            }
            refresh_attributes(file)
        }
        Kind::Created | Kind::Removed | Kind::Renamed | Kind::Exchanged => Err(Errno::INVAL),
    }
}

fn refresh_attributes(file: &OwnedFd) -> Result<(), Errno> {
    statx(file, "", AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC, StatxFlags::BASIC_STATS).map(drop)
}

/// Drops every name of the share that is not in use, after changes were lost.
pub(crate) fn drop_unused_names(root: &OwnedFd) -> io::Result<()> {
    let picked = fspick(root, "", FsPickFlags::FSPICK_CLOEXEC | FsPickFlags::FSPICK_EMPTY_PATH)?;
    Ok(fsconfig_reconfigure(&picked)?)
}

fn create(parent: &OwnedFd, change: &Change<'_>) -> Result<(), Errno> {
    let mode = Mode::RUSR | Mode::WUSR;
    match change.file_type {
        libc::DT_DIR => mkdirat(parent, change.name, mode | Mode::XUSR),
        libc::DT_LNK => symlinkat(".", parent, change.name),
        file_type => mknodat(parent, change.name, FileType::from_raw_mode(u32::from(file_type) << 12), mode, 0),
    }
}

/// Opens a regular file, which drops its pages, sets its times and closes it.
///
/// The open comes first: otherwise the kernel would take the new times with the old pages.
fn modify(file: &OwnedFd, access: OFlags) -> Result<(), Errno> {
    let opened = open_file(file, access)?;
    let omitted = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
    let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    futimens(&opened, &Timestamps { last_access: omitted, last_modification: now })
}

/// Opens a regular file; anything else could have an effect when it is opened.
fn open_file(file: &OwnedFd, access: OFlags) -> Result<OwnedFd, Errno> {
    if file_type(file)? != FileType::RegularFile {
        return Err(Errno::INVAL);
    }
    open(of_descriptor(file), access | OFlags::CLOEXEC | OFlags::NOCTTY, Mode::empty())
}

/// Changes an attribute, which brings all of them: the mode, or of a symbolic link the owner.
fn change_attributes(file: &OwnedFd) -> Result<(), Errno> {
    if file_type(file)? == FileType::Symlink {
        return chownat(file, "", Some(Uid::ROOT), None::<Gid>, AtFlags::EMPTY_PATH);
    }
    change_mode(file)
}

fn change_mode(file: &OwnedFd) -> Result<(), Errno> {
    chmod(of_descriptor(file), Mode::RWXU)
}

/// Refers to what `name` is, without following it.
fn refer(parent: &OwnedFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    openat(parent, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

/// Returns the type, which the kernel knows without a request.
fn file_type(file: &OwnedFd) -> Result<FileType, Errno> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    Ok(FileType::from_raw_mode(statx(file, "", flags, StatxFlags::TYPE)?.stx_mode.into()))
}

fn of_descriptor(file: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}
