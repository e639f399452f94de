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
use transom_wire::agent::{Change, Kind};

use crate::directories::Directories;

/// Replays one change.
///
/// # Errors
///
/// The kernel does not know the directory, has nothing to change, or refuses: then there is no event.
pub(crate) fn replay(directories: &mut Directories, change: &Change<'_>) -> io::Result<()> {
    let parent = directories.get(change.parent)?;
    make(directories, &parent, change).inspect_err(|_| {
        // The directory itself has changed in any case.
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC;
        let _ = statx(&*parent, "", flags, StatxFlags::BASIC_STATS);
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
        Kind::Removed => unlinkat(parent, change.name, AtFlags::empty())?,
        Kind::Renamed => renameat(parent, change.name, &*directories.get(change.new_parent)?, change.new_name)?,
        Kind::Exchanged => {
            let new_parent = &*directories.get(change.new_parent)?;
            renameat_with(parent, change.name, new_parent, change.new_name, RenameFlags::EXCHANGE)?;
        }
        Kind::Modified => modify(parent, change.name, OFlags::RDONLY)?,
        Kind::Written => match modify(parent, change.name, OFlags::WRONLY) {
            // A program that runs cannot be opened for writing: only the event of the close is lost.
            Err(Errno::TXTBSY) => modify(parent, change.name, OFlags::RDONLY)?,
            outcome => outcome?,
        },
        Kind::Closed => drop(open_file(parent, change.name, OFlags::WRONLY)?),
        Kind::Attributes if change.name.is_empty() => change_mode(parent)?,
        Kind::Attributes => change_attributes(&refer(parent, change.name)?)?,
    }
    Ok(())
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
fn modify(parent: &OwnedFd, name: &[u8], access: OFlags) -> Result<(), Errno> {
    let opened = open_file(parent, name, access)?;
    let omitted = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
    let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    futimens(&opened, &Timestamps { last_access: omitted, last_modification: now })
}

/// Opens a regular file; anything else could have an effect when it is opened.
fn open_file(parent: &OwnedFd, name: &[u8], access: OFlags) -> Result<OwnedFd, Errno> {
    let file = refer(parent, name)?;
    if file_type(&file)? != FileType::RegularFile {
        return Err(Errno::INVAL);
    }
    open(of_descriptor(&file), access | OFlags::CLOEXEC | OFlags::NOCTTY, Mode::empty())
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
