//! Removes changes from the upper layer: what is removed is first moved out of it at once, and then deleted.

use std::{
    ffi::OsString,
    io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use rustix::{
    fs::{CWD, Mode, RenameFlags, chmod, renameat, renameat_with},
    io::Errno,
};

use crate::{
    Error, Result, attributes,
    tree::{Tree, remove},
};

/// Returns the directory at or above `path` that the guest has replaced as a whole, if `path` cannot be treated alone.
pub(crate) fn whole(upper: &Tree, path: &Path) -> Result<Option<PathBuf>> {
    let above: Vec<_> = path.ancestors().skip(1).filter(|above| !above.as_os_str().is_empty()).collect();
    for above in above.into_iter().rev() {
        match upper.node(above)? {
            None => return Ok(None),
            Some(node) if !node.meta.is_directory() || attributes::is_opaque(&node) => return Ok(Some(above.into())),
            Some(_) => {}
        }
    }
    Ok(None)
}

/// Moves what `upper` has at `paths` to `trash`. What is not there any more has been moved before.
pub(crate) fn move_away(upper: &Tree, paths: &[PathBuf], trash: &Path) -> Result<()> {
    let failed = |path: &Path| {
        let path = upper.full(path);
        Error::io(move || format!("cannot remove {path:?}"))
    };
    for (number, path) in paths.iter().enumerate() {
        let Some(node) = upper.node(path)? else { continue };
        // It cannot be taken out alone, and what is equal in both layers may stay.
        if whole(upper, path)?.is_some() {
            continue;
        }
        if node.meta.is_directory() {
            // Its owner cannot move a directory that is not writable.
            chmod(&*node.path(), Mode::from_raw_mode(node.meta.mode | 0o700)).map_err(failed(path))?;
        }
        let (parent, name, mode) = upper.writable_parent(path)?;
        let moved = renameat(&parent, name, CWD, trash.join(number.to_string()));
        if let Some(mode) = mode {
            chmod(&*parent.path(), Mode::from_raw_mode(mode)).map_err(failed(path))?;
        }
        moved.map_err(failed(path))?;
    }
    Ok(())
}

/// Deletes a directory of this user with everything in it, however deep it is.
pub(crate) fn delete(path: &Path) -> Result<()> {
    match delete_flat(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result.map_err(Error::io(|| format!("cannot delete {path:?}"))),
    }
}

/// Deletes level by level: directories move up before they are opened, so that no path gets long.
fn delete_flat(path: &Path) -> io::Result<()> {
    let mut number = 0_u64;
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o700))?;
    let tree = Tree::open(path).map_err(io::Error::other)?;
    loop {
        let names = tree.names(Path::new("")).map_err(io::Error::other)?;
        if names.is_empty() {
            return std::fs::remove_dir(path);
        }
        for name in names {
            let name = PathBuf::from(name);
            let node = tree.node(&name).map_err(io::Error::other)?;
            if node.as_ref().is_none_or(|node| !node.meta.is_directory()) {
                remove(tree.root(), name.as_os_str(), false)?;
                continue;
            }
            if let Some(node) = node {
                chmod(&*node.path(), Mode::RWXU)?;
            }
            let directory = Tree::open(&path.join(&name)).map_err(io::Error::other)?;
            for below in directory.names(Path::new("")).map_err(io::Error::other)? {
                match remove(directory.root(), &below, false) {
                    Err(error) if error.raw_os_error() == Some(Errno::ISDIR.raw_os_error()) => {
                        move_up(&directory, &below, &tree, &mut number)?;
                    }
                    result => result?,
                }
            }
            remove(tree.root(), name.as_os_str(), true)?;
        }
    }
}

fn move_up(from: &Tree, name: &OsString, to: &Tree, number: &mut u64) -> io::Result<()> {
    if let Some(node) = from.node(Path::new(name)).map_err(io::Error::other)? {
        chmod(&*node.path(), Mode::RWXU)?;
    }
    loop {
        *number += 1;
        match renameat_with(from.root(), name, to.root(), format!("{number}"), RenameFlags::NOREPLACE) {
            // The guest has used this name.
            Err(Errno::EXIST) => {}
            result => return Ok(result?),
        }
    }
}
