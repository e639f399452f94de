//! The two directories that overlayfs writes to. A guest that mounts an overlay itself has them as a share, and may do
//! with them what it likes: remove them, put links or files in their place, or anything beside them.

use std::{
    fs::{self, DirBuilder},
    io,
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{CWD, FileType, Mode, XattrFlags, chmod, mkdirat, mknodat, removexattr, setxattr, unlink},
    io::Errno,
};

use crate::{
    Error, Kind, Result, attributes, clear,
    tree::{Node, Tree},
};

/// The upper layer.
pub(crate) const UPPER: &str = "upper";
/// What the kernel needs beside it.
pub(crate) const WORK: &str = "work";

/// The kernel's note from which file a file was copied: a file handle of the file system of the lower layer.
const ORIGIN: &std::ffi::CStr = c"user.overlay.origin";

/// Makes `work` anew, and removes what is beside the upper layer. What a guest or a crash has left there could keep the
/// kernel from mounting.
pub(crate) fn tidy(layers: &Path) -> Result<()> {
    let failed = || format!("cannot prepare {layers:?}");
    fs::set_permissions(layers, PermissionsExt::from_mode(0o700)).map_err(Error::io(failed))?;
    for entry in fs::read_dir(layers).map_err(Error::io(failed))? {
        let entry = entry.map_err(Error::io(failed))?;
        if entry.file_name() == UPPER {
            continue;
        }
        match entry.file_type().map_err(Error::io(failed))?.is_dir() {
            true => clear::delete(&entry.path())?,
            false => fs::remove_file(entry.path()).map_err(Error::io(failed))?,
        }
    }
    DirBuilder::new().mode(0o700).create(layers.join(WORK)).map_err(Error::io(failed))
}

/// Returns whether an error says that the upper layer is no directory any more.
pub(crate) fn is_destroyed(error: &io::Error) -> bool {
    use io::ErrorKind::{NotADirectory, NotFound};
    matches!(error.kind(), NotFound | NotADirectory) || error.raw_os_error() == Some(Errno::LOOP.raw_os_error())
}

/// Checks that the file system of the layers takes what an overlayfs in a guest makes of it: an overlay, for example,
/// takes no white-outs.
pub(crate) fn check_file_system(layers: &Path) -> Result<()> {
    let path = layers.join(WORK).join("white-out");
    let white_out = mknodat(CWD, &path, FileType::CharacterDevice, Mode::empty(), 0);
    let noted = setxattr(layers.join(WORK), c"user.overlay.check", b"y", XattrFlags::empty());
    let removed = white_out.and_then(|()| unlink(&path));
    let Err(errno) = removed.and(noted) else { return Ok(()) };
    Err(Error::Place(format!(
        "changes cannot be kept in {}, whose file system takes no white-outs or attributes of users ({errno}), as \
         overlays do not: set XDG_STATE_HOME to a directory on another one, such as a volume",
        layers.display()
    )))
}

/// Removes the kernel's notes from which files the guest's files were copied: the handles are those of a session with
/// a daemon, and in the next session stand for other files.
pub(crate) fn forget_origins(upper: &Tree) -> Result<()> {
    let mut left = vec![PathBuf::new()];
    while let Some(directory) = left.pop() {
        for name in upper.names(&directory)? {
            let path = directory.join(name);
            let Some(node) = upper.node(&path)? else { continue };
            if matches!(node.meta.kind, Kind::File | Kind::Directory) {
                forget_origin(&node).map_err(Error::io(|| format!("cannot change {:?}", upper.full(&path))))?;
            }
            if node.meta.is_directory() {
                left.push(path);
            }
        }
    }
    Ok(())
}

fn forget_origin(node: &Node) -> io::Result<()> {
    let path = node.path();
    match removexattr(&*path, ORIGIN) {
        Ok(()) | Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(()),
        // Its owner may not write to it.
        Err(Errno::ACCESS) => {
            chmod(&*path, Mode::from_raw_mode(node.meta.mode | 0o600))?;
            let removed = removexattr(&*path, ORIGIN);
            chmod(&*path, Mode::from_raw_mode(node.meta.mode))?;
            match removed {
                Err(Errno::NODATA) => Ok(()),
                removed => Ok(removed?),
            }
        }
        Err(errno) => Err(errno.into()),
    }
}

/// Makes the directories above `path` in the upper layer, as they are in the lower one: a daemon that hides the path
/// lets nobody put a directory there.
pub(crate) fn make_way(upper: &Tree, lower: &Tree, path: &Path) -> Result<()> {
    let mut above: Vec<_> = path.ancestors().skip(1).filter(|above| !above.as_os_str().is_empty()).collect();
    above.reverse();
    for directory in above {
        match (upper.node(directory)?, lower.node(directory)?) {
            (Some(of_upper), _) if of_upper.meta.is_directory() => {}
            (None, Some(of_lower)) if of_lower.meta.is_directory() => make_directory(upper, directory, &of_lower)?,
            // The guest has put something else there, or the host has no such directory.
            _ => break,
        }
    }
    Ok(())
}

fn make_directory(upper: &Tree, path: &Path, like: &Node) -> Result<()> {
    let failed = || format!("cannot make {:?}", upper.full(path));
    let (parent, name, mode) = upper.writable_parent(path)?;
    let made = mkdirat(&parent, name, Mode::RWXU).map_err(io::Error::from).and_then(|()| {
        let node = upper.node(path).map_err(io::Error::other)?;
        attributes::carry(like, &node.ok_or(io::ErrorKind::NotFound)?)?;
        // For the guest, nothing has changed in it.
        attributes::set_times(&parent, &parent.meta)
    });
    if let Some(mode) = mode {
        chmod(&*parent.path(), Mode::from_raw_mode(mode)).map_err(Error::io(failed))?;
    }
    made.map_err(Error::io(failed))
}
