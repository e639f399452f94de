//! A directory whose files are reached by paths that never leave it.
//!
//! The kernel resolves each path beneath the directory and through no symbolic link (`openat2`), so a link that the
//! guest has made is only ever looked at. A path that leads through one does not exist for a [`Tree`]. A path that
//! leads to another file system is an error.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStringExt,
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::{AtFlags, CWD, Dir, Mode, OFlags, ResolveFlags, chmod, fstat, openat, openat2, readlinkat, syncfs},
    io::Errno,
    process::geteuid,
};

use crate::{Error, Kind, Meta, Result};

/// A directory, and everything beneath it.
#[derive(Debug)]
pub(crate) struct Tree {
    root: OwnedFd,
    path: PathBuf,
    /// The directory is this user's alone, so that its modes may be changed for a moment.
    is_private: bool,
}

/// A file that is open for nothing but its attributes.
#[derive(Debug)]
pub(crate) struct Node {
    fd: OwnedFd,
    pub(crate) meta: Meta,
}

impl Node {
    /// Returns a path that leads to the file as long as this lives, whatever its name is. Not for symbolic links.
    pub(crate) fn path(&self) -> String {
        format!("/proc/self/fd/{}", self.fd.as_raw_fd())
    }

    /// Returns where a symbolic link leads.
    pub(crate) fn target(&self) -> io::Result<OsString> {
        Ok(OsString::from_vec(readlinkat(&self.fd, "", Vec::new())?.into_bytes()))
    }
}

impl AsFd for Node {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Tree {
    /// Opens a directory of the user.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        Self::open_with(path, OFlags::empty())
    }

    /// Opens a directory that nobody else can reach, and that is no symbolic link.
    pub(crate) fn open_private(path: &Path) -> Result<Self> {
        Ok(Self { is_private: true, ..Self::open_with(path, OFlags::NOFOLLOW)? })
    }

    fn open_with(path: &Path, flags: OFlags) -> Result<Self> {
        let flags = flags | OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = openat(CWD, path, flags, Mode::empty()).map_err(Error::io(|| format!("cannot open {path:?}")))?;
        Ok(Self { root, path: path.to_owned(), is_private: false })
    }

    /// Returns the whole path of a file, for messages.
    pub(crate) fn full(&self, path: &Path) -> PathBuf {
        self.path.join(path)
    }

    fn at(&self, path: &Path, flags: OFlags) -> std::result::Result<OwnedFd, Errno> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let resolve =
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
        openat2(&self.root, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve)
    }

    /// Returns the file at `path`, or `None` if nothing is there without following a symbolic link.
    pub(crate) fn node(&self, path: &Path) -> Result<Option<Node>> {
        let failed = || format!("cannot look at {:?}", self.full(path));
        let fd = match self.at(path, OFlags::PATH | OFlags::NOFOLLOW) {
            Ok(fd) => fd,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
            Err(Errno::XDEV) => {
                let text = "another file system is mounted there, and a guest has not seen that one: unmount it";
                return Err(Error::io(failed)(io::Error::new(io::ErrorKind::CrossesDevices, text)));
            }
            Err(errno) => return Err(Error::io(failed)(errno)),
        };
        let meta = Meta::from(fstat(&fd).map_err(Error::io(failed))?);
        Ok(Some(Node { fd, meta }))
    }

    /// Returns the attributes of the file at `path`.
    pub(crate) fn meta(&self, path: &Path) -> Result<Option<Meta>> {
        Ok(self.node(path)?.map(|node| node.meta))
    }

    /// Returns the names in the directory at `path`, sorted.
    pub(crate) fn names(&self, path: &Path) -> Result<Vec<OsString>> {
        let failed = || format!("cannot list {:?}", self.full(path));
        let fd = self.readable(path, OFlags::DIRECTORY).map_err(Error::io(failed))?;
        let mut names = Vec::new();
        for entry in Dir::new(fd).map_err(Error::io(failed))? {
            let name = entry.map_err(Error::io(failed))?.file_name().to_bytes().to_vec();
            if name != b"." && name != b".." {
                names.push(OsString::from_vec(name));
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    /// Opens the regular file at `path` for reading.
    pub(crate) fn file(&self, path: &Path) -> io::Result<File> {
        // Neither a pipe nor a device that the host has put here meanwhile is waited for.
        let fd = self.readable(path, OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY)?;
        match Meta::from(fstat(&fd)?).kind {
            Kind::File => Ok(File::from(fd)),
            _ => Err(io::Error::other("it is no longer a regular file")),
        }
    }

    /// Opens `path` for reading. A guest's root reads files without permission; their owner here makes it so.
    fn readable(&self, path: &Path, flags: OFlags) -> std::result::Result<OwnedFd, Errno> {
        match self.at(path, OFlags::RDONLY | flags) {
            Err(Errno::ACCESS) if self.is_private => {}
            result => return result,
        }
        let fd = self.at(path, OFlags::PATH | OFlags::NOFOLLOW)?;
        let before = fstat(&fd)?;
        let proc = format!("/proc/self/fd/{}", fd.as_raw_fd());
        chmod(&*proc, Mode::from_raw_mode(before.st_mode & 0o7777 | 0o700))?;
        let opened = self.at(path, OFlags::RDONLY | flags);
        chmod(&*proc, Mode::from_raw_mode(before.st_mode & 0o7777))?;
        opened
    }

    /// Opens the directory that contains `path`, and returns it with the last name of `path`.
    pub(crate) fn parent<'a>(&self, path: &'a Path) -> Result<(Node, &'a OsStr)> {
        let (Some(above), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(Error::Outside(path.to_owned()));
        };
        match self.node(above)? {
            Some(node) if node.meta.is_directory() => Ok((node, name)),
            _ => Err(Error::Meanwhile(above.to_owned())),
        }
    }

    /// As `parent`, for a change of names there. If its mode forbids that to its owner, the mode is changed, and
    /// returned as it was.
    pub(crate) fn writable_parent<'a>(&self, path: &'a Path) -> Result<(Node, &'a OsStr, Option<u32>)> {
        let (node, name) = self.parent(path)?;
        let is_closed = node.meta.mode & 0o300 != 0o300;
        if !is_closed || geteuid().is_root() || node.meta.uid != geteuid().as_raw() {
            return Ok((node, name, None));
        }
        let failed = || format!("cannot make the directory of {:?} writable", self.full(path));
        chmod(&*node.path(), Mode::from_raw_mode(node.meta.mode | 0o700)).map_err(Error::io(failed))?;
        let mode = node.meta.mode;
        Ok((node, name, Some(mode)))
    }

    /// Writes what has been changed on its file system to the disk.
    pub(crate) fn sync(&self) -> Result<()> {
        let failed = || format!("cannot write {:?} to the disk", self.path);
        let fd = self.at(Path::new(""), OFlags::RDONLY | OFlags::DIRECTORY).map_err(Error::io(failed))?;
        syncfs(fd).map_err(Error::io(failed))
    }

    /// Returns the descriptor of the directory itself.
    pub(crate) fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }
}

/// Removes the name of a file that is no directory, or of an empty directory. A name that is gone is no error.
pub(crate) fn remove(directory: impl AsFd, name: &OsStr, is_directory: bool) -> io::Result<()> {
    let flags = if is_directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
    match rustix::fs::unlinkat(directory, name, flags) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}
