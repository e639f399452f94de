//! The directory that an image is unpacked into. Nothing outside of it is made, changed or removed.
//!
//! A path of an image is split into names, of which none is `..`. Its directory is resolved by the kernel as if the
//! root were `/` (`RESOLVE_IN_ROOT`), because images have symbolic links in paths, as in `lib/x` with `lib -> usr/lib`.
//! Its last name is never followed. Nobody else can reach the directory meanwhile.

use std::{
    ffi::{CString, OsStr},
    fs::{self, File, Permissions},
    io,
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::{ffi::OsStrExt, fs::PermissionsExt},
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::{
        AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, ResolveFlags, Timespec, Timestamps, Uid, chownat, fchmod,
        fchown, futimens, linkat, mkdirat, mknodat, openat, openat2, statat, symlinkat, unlinkat, utimensat,
    },
    io::Errno,
    process::geteuid,
};

use crate::{Watch, tarball::Member};

/// Directories in each other in which something is made. A path has fewer, but can begin with a link to a directory
/// that is deep itself.
const DEPTH_MAX: usize = 256;
/// Directories in each other that are removed: a path is made before its depth is known. Each takes a descriptor and
/// some stack.
const REMOVED_DEPTH_MAX: usize = 2 * DEPTH_MAX + 1;

/// The directory.
pub(crate) struct Root<'a> {
    directory: OwnedFd,
    /// Its path as the kernel sees it.
    path: PathBuf,
    watch: &'a dyn Watch,
    /// Ordinary users cannot give files to others.
    keeps_owners: bool,
    /// The last directory in which something was made.
    last: Option<(Vec<u8>, OwnedFd)>,
}

impl<'a> Root<'a> {
    pub(crate) fn open(path: &Path, watch: &'a dyn Watch) -> io::Result<Self> {
        let directory = openat(CWD, path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let path = path_of(&directory)?;
        Ok(Self { directory, path, watch, keeps_owners: geteuid().is_root(), last: None })
    }

    /// Makes a directory, or takes the one that is there.
    pub(crate) fn directory(&mut self, names: &[&[u8]], member: &Member) -> io::Result<()> {
        let made = match names.split_last() {
            None => self.directory.try_clone()?,
            Some((name, above)) => {
                let parent = self.parent(above)?;
                match open_directory(&parent, name) {
                    Ok(there) => there,
                    Err(Errno::NOENT) => make_directory(&parent, name)?,
                    Err(_) => {
                        self.clear(&parent, name)?;
                        make_directory(&parent, name)?
                    }
                }
            }
        };
        // It must stay usable for the user who unpacks.
        self.finish(File::from(made), member, 0o700)
    }

    /// Makes a regular file, which replaces what is there. The content is written by `fill`.
    pub(crate) fn file<E: From<io::Error>>(
        &mut self,
        names: &[&[u8]],
        member: &Member,
        fill: impl FnOnce(&mut File) -> Result<(), E>,
    ) -> Result<(), E> {
        let (parent, name) = self.place(names)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = openat(&parent, OsStr::from_bytes(name), flags, Mode::RUSR | Mode::WUSR);
        let mut file = File::from(opened.map_err(io::Error::from)?);
        fill(&mut file)?;
        Ok(self.finish(file, member, 0o400)?)
    }

    /// Makes a symbolic link, which replaces what is there. Where it leads is the guest's business.
    pub(crate) fn symbolic_link(&mut self, names: &[&[u8]], member: &Member) -> io::Result<()> {
        let (parent, name) = self.place(names)?;
        symlinkat(CString::new(&*member.target)?, &parent, OsStr::from_bytes(name))?;
        // It may lead the directory that was used last elsewhere.
        self.last = None;
        self.attribute(&parent, name, member)
    }

    /// Makes a pipe.
    pub(crate) fn pipe(&mut self, names: &[&[u8]], member: &Member) -> io::Result<()> {
        let (parent, name) = self.place(names)?;
        mknodat(&parent, OsStr::from_bytes(name), FileType::Fifo, Mode::from_raw_mode(member.mode & 0o777), 0)?;
        self.attribute(&parent, name, member)
    }

    /// Makes another name of the file `target`.
    pub(crate) fn hard_link(&mut self, names: &[&[u8]], target: &[&[u8]]) -> io::Result<()> {
        let Some((old_name, old_above)) = target.split_last() else { return Err(Errno::PERM.into()) };
        let from = self.parent(old_above)?;
        if names == target {
            return Ok(());
        }
        statat(&from, OsStr::from_bytes(old_name), AtFlags::SYMLINK_NOFOLLOW)?;
        let (parent, name) = self.place(names)?;
        // Without AT_SYMLINK_FOLLOW, a symbolic link gets another name itself.
        Ok(linkat(&from, OsStr::from_bytes(old_name), &parent, OsStr::from_bytes(name), AtFlags::empty())?)
    }

    /// Removes what is at a path, with everything below it.
    pub(crate) fn remove(&mut self, names: &[&[u8]]) -> io::Result<()> {
        let Some((name, above)) = names.split_last() else { return Err(Errno::PERM.into()) };
        match self.resolve(above) {
            Ok(parent) => self.clear(&parent, name),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Removes what is below a directory, except paths that `stays` is told and returns true for.
    pub(crate) fn remove_below(&mut self, names: &[&[u8]], stays: &dyn Fn(&[&[u8]]) -> bool) -> io::Result<()> {
        let directory = match self.resolve(names) {
            Ok(directory) => directory,
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(()),
            Err(errno) => return Err(errno.into()),
        };
        for name in children(&directory)? {
            let path: Vec<&[u8]> = names.iter().copied().chain([&*name]).collect();
            if !stays(&path) {
                self.clear(&directory, &name)?;
            } else if open_directory(&directory, &name).is_ok() {
                self.remove_below(&path, stays)?;
            }
        }
        Ok(())
    }

    /// Returns the directory in which the last of `names` is to be made, which is free then, and that name.
    fn place<'n>(&mut self, names: &[&'n [u8]]) -> io::Result<(OwnedFd, &'n [u8])> {
        let Some((name, above)) = names.split_last() else { return Err(Errno::ISDIR.into()) };
        let parent = self.parent(above)?;
        self.clear(&parent, name)?;
        Ok((parent, name))
    }

    /// Opens the directory at `names`, and makes what is missing of it.
    fn parent(&mut self, names: &[&[u8]]) -> io::Result<OwnedFd> {
        let path = names.join(&b'/');
        if let Some((last, directory)) = &self.last
            && *last == path
        {
            return directory.try_clone();
        }
        let directory = match self.resolve(names) {
            Err(Errno::NOENT) => self.make_all(names)?,
            result => result?,
        };
        self.check_depth(&directory)?;
        self.last = Some((path, directory.try_clone()?));
        Ok(directory)
    }

    /// Refuses directories that are so deep that what is in them could not be removed.
    fn check_depth(&self, directory: &OwnedFd) -> io::Result<()> {
        let path = path_of(directory)?;
        let below =
            path.strip_prefix(&self.path).map_err(|_| io::Error::other("it is not in the image's directory"))?;
        match below.components().count() {
            depth if depth > DEPTH_MAX => {
                Err(io::Error::other(format!("it is in more than {DEPTH_MAX} directories, by way of a link")))
            }
            _ => Ok(()),
        }
    }

    fn make_all(&self, names: &[&[u8]]) -> io::Result<OwnedFd> {
        let mut directory = self.directory.try_clone()?;
        for (depth, name) in names.iter().enumerate() {
            directory = match self.resolve(&names[..=depth]) {
                Err(Errno::NOENT) => make_directory(&directory, name)?,
                result => result?,
            };
        }
        Ok(directory)
    }

    /// Opens the directory at `names` as if the root were `/`.
    fn resolve(&self, names: &[&[u8]]) -> rustix::io::Result<OwnedFd> {
        if names.is_empty() {
            return rustix::io::fcntl_dupfd_cloexec(&self.directory, 0);
        }
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        openat2(&self.directory, OsStr::from_bytes(&names.join(&b'/')), flags, Mode::empty(), resolve)
    }

    /// Removes `name` in `parent`, if it is there.
    fn clear(&mut self, parent: &OwnedFd, name: &[u8]) -> io::Result<()> {
        if remove(parent, name, REMOVED_DEPTH_MAX, self.watch)? {
            self.last = None;
        }
        Ok(())
    }

    /// Sets owner, mode and time of something that is open. `least` is what its owner may do with it in any case.
    fn finish(&self, file: File, member: &Member, least: u32) -> io::Result<()> {
        let mode = member.mode & 0o7777;
        if self.keeps_owners {
            let (uid, gid) = owner(member)?;
            fchown(&file, Some(uid), Some(gid))?;
        }
        // After the owner, whose change clears set-user-id.
        file.set_permissions(Permissions::from_mode(if self.keeps_owners { mode } else { mode | least }))?;
        Ok(futimens(&file, &times(member))?)
    }

    /// Sets owner and time of something that cannot be opened.
    fn attribute(&self, parent: &OwnedFd, name: &[u8], member: &Member) -> io::Result<()> {
        let name = OsStr::from_bytes(name);
        if self.keeps_owners {
            let (uid, gid) = owner(member)?;
            chownat(parent, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
        }
        Ok(utimensat(parent, name, &times(member), AtFlags::SYMLINK_NOFOLLOW)?)
    }
}

fn owner(member: &Member) -> io::Result<(Uid, Gid)> {
    // The last number means "unchanged".
    let number = |id: u64| u32::try_from(id).ok().filter(|&id| id != u32::MAX);
    match (number(member.uid), number(member.gid)) {
        (Some(uid), Some(gid)) => Ok((Uid::from_raw(uid), Gid::from_raw(gid))),
        _ => Err(io::Error::other(format!("invalid owner {}:{}", member.uid, member.gid))),
    }
}

fn times(member: &Member) -> Timestamps {
    let time = Timespec { tv_sec: member.mtime, tv_nsec: 0 };
    Timestamps { last_access: time, last_modification: time }
}

fn open_directory(parent: impl AsFd, name: &[u8]) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(parent, OsStr::from_bytes(name), flags, Mode::empty())
}

fn make_directory(parent: &OwnedFd, name: &[u8]) -> io::Result<OwnedFd> {
    mkdirat(parent, OsStr::from_bytes(name), Mode::RWXU)?;
    let directory = open_directory(parent, name)?;
    // Unlike mkdir, not subject to the umask.
    fchmod(&directory, Mode::from_raw_mode(0o755))?;
    Ok(directory)
}

/// Removes `name` in `parent` with everything below it; returns whether it was there.
fn remove(parent: &OwnedFd, name: &[u8], depth: usize, watch: &dyn Watch) -> io::Result<bool> {
    if watch.is_cancelled() {
        return Err(io::Error::other("stopped"));
    }
    let at = OsStr::from_bytes(name);
    match unlinkat(parent, at, AtFlags::empty()) {
        Ok(()) => return Ok(true),
        Err(Errno::NOENT) => return Ok(false),
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(errno) => return Err(errno.into()),
    }
    if depth == 0 {
        return Err(io::Error::other(format!(
            "more than {REMOVED_DEPTH_MAX} directories in each other cannot be removed"
        )));
    }
    let directory = open_directory(parent, name)?;
    for child in children(&directory)? {
        remove(&directory, &child, depth - 1, watch)?;
    }
    unlinkat(parent, at, AtFlags::REMOVEDIR)?;
    Ok(true)
}

/// Returns the path of a directory that is open.
fn path_of(directory: &OwnedFd) -> io::Result<PathBuf> {
    fs::read_link(format!("/proc/self/fd/{}", directory.as_raw_fd()))
}

/// Returns the names in a directory.
fn children(directory: &OwnedFd) -> io::Result<Vec<Vec<u8>>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let name = entry?.file_name().to_bytes().to_vec();
        if name != b"." && name != b".." {
            names.push(name);
        }
    }
    Ok(names)
}
