//! Copying files and trees into a share, out of it, and within it.
//!
//! A file or link is created under a temporary name and renamed at the end, so that a copy that fails or is interrupted
//! leaves the destination as it was. Holes are preserved if the source reports them.

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt as _,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
};

use anyhow::{Context as _, Result, bail, ensure};
use indicatif::ProgressBar;

use super::{
    DEPTH_MAX,
    tree::{Kind, Meta, Reader, Tree, Writer},
};
use crate::tell::path_in_line;

/// The most that one request can carry.
const CHUNK_LEN: usize = 1 << 20;

/// The options and state of a copy.
pub(super) struct Copier<'a> {
    pub(super) is_recursive: bool,
    /// Whether to preserve times and modes, and owners if permitted.
    pub(super) preserves: bool,
    pub(super) progress: &'a ProgressBar,
    /// Set by a signal; aborts the current copy.
    pub(super) is_stopped: &'a AtomicBool,
    /// Reused for every file.
    pub(super) buffer: Vec<u8>,
    /// Called with the error of each path that could not be copied.
    pub(super) failed: &'a mut dyn FnMut(&anyhow::Error),
    /// Number of temporary names used so far.
    pub(super) copies: u64,
}

/// A path in a tree.
#[derive(Clone, Copy)]
pub(super) struct TreePath<'a> {
    pub(super) tree: &'a dyn Tree,
    pub(super) path: &'a Path,
}

impl TreePath<'_> {
    pub(super) fn name(&self) -> String {
        format!("{}{}", self.tree.prefix(), path_in_line(self.path))
    }
}

impl<'a> Copier<'a> {
    pub(super) fn new(
        progress: &'a ProgressBar,
        is_stopped: &'a AtomicBool,
        failed: &'a mut dyn FnMut(&anyhow::Error),
    ) -> Self {
        let buffer = vec![0; CHUNK_LEN];
        Self { is_recursive: false, preserves: false, progress, is_stopped, buffer, failed, copies: 0 }
    }

    /// Copies `from`, a file, directory or link, to exactly the path `to`. Errors within a directory go to `failed`.
    ///
    /// # Errors
    ///
    /// Returns an error that concerns `from` itself, or that stops the whole copy.
    pub(super) fn copy(&mut self, from: TreePath<'_>, to: TreePath<'_>, follow: bool) -> Result<()> {
        if self.is_recursive {
            check_apart(from, to)?;
        }
        self.copy_at_depth(from, to, follow, 0)
    }

    fn copy_at_depth(&mut self, from: TreePath<'_>, to: TreePath<'_>, follow: bool, depth: usize) -> Result<()> {
        self.check_interrupted()?;
        let meta = from.tree.metadata(from.path, follow).with_context(|| from.name())?;
        match meta.kind() {
            Kind::File => {
                self.create_and_rename(to, |copier, part, is_made| copier.copy_to_part(from, part, &meta, is_made))
            }
            Kind::Directory if !self.is_recursive => {
                bail!("{}: is a directory; use --recursive to copy it", from.name())
            }
            Kind::Directory if depth == DEPTH_MAX => {
                bail!("{}: more than {DEPTH_MAX} levels of directories", from.name())
            }
            Kind::Directory => self.copy_directory(from, to, &meta, depth),
            Kind::Symlink => {
                let target = from.tree.read_link(from.path).with_context(|| from.name())?;
                self.create_and_rename(to, |_, part, is_made| {
                    part.tree.symlink(&target, part.path).with_context(|| part.name())?;
                    *is_made = true;
                    Ok(())
                })
            }
            Kind::Other => bail!("{}: not a file, directory or symbolic link", from.name()),
        }
    }

    fn copy_directory(&mut self, from: TreePath<'_>, to: TreePath<'_>, meta: &Meta, depth: usize) -> Result<()> {
        // Read before the target is created, which may lie within the source if the source is the shared directory.
        let names = from.tree.read_dir(from.path).with_context(|| from.name())?;
        // Links are not followed: a hostile server may list a name twice, first as a link that leads out of the target.
        let is_given = depth == 0 && from.path.file_name().is_none();
        match to.tree.metadata(to.path, is_given) {
            Ok(there) => ensure!(there.kind() == Kind::Directory, "{}: not a directory", to.name()),
            Err(_) => to.tree.mkdir(to.path, 0o700 | meta.mode & 0o777).with_context(|| to.name())?,
        }
        for name in names {
            let name = OsStr::from_bytes(&name);
            let (source, target) = (from.path.join(name), to.path.join(name));
            let (source, target) = (TreePath { path: &source, ..from }, TreePath { path: &target, ..to });
            if let Err(error) = self.copy_at_depth(source, target, false, depth + 1) {
                self.check_interrupted()?;
                (self.failed)(&error);
            }
        }
        // Last, because creating entries changed the times.
        to.tree.finish(to.path, meta, self.preserves).with_context(|| to.name())
    }

    /// Creates a file or link under a temporary name and renames it to `to`, replacing anything but a directory. `make`
    /// sets its flag once there is something to remove after a failure.
    fn create_and_rename(
        &mut self,
        to: TreePath<'_>,
        make: impl FnOnce(&mut Self, TreePath<'_>, &mut bool) -> Result<()>,
    ) -> Result<()> {
        self.copies += 1;
        let part = to.path.with_file_name(format!(".transom-{}-{}.part", std::process::id(), self.copies));
        let part = TreePath { path: &part, ..to };
        let mut is_made = false;
        let made = make(self, part, &mut is_made);
        let made = made.and_then(|()| to.tree.rename(part.path, to.path).with_context(|| to.name()));
        made.map_err(|error| match to.tree.remove_file(part.path) {
            // For example because the daemon is gone.
            Err(reason) if is_made => error.context(format!("cannot remove {} ({reason}) after", part.name())),
            _ => error,
        })
    }

    fn copy_to_part(&mut self, from: TreePath<'_>, part: TreePath<'_>, meta: &Meta, is_made: &mut bool) -> Result<()> {
        self.progress.set_message(from.name());
        let source = from.tree.open(from.path).with_context(|| from.name())?;
        let target = part.tree.create(part.path, meta.mode & 0o777).with_context(|| part.name())?;
        *is_made = true;
        let len = self.copy_data(from, &*source, part, &*target)?;
        // A hole at the end is represented only by the length.
        target.set_len(len).with_context(|| part.name())?;
        target.close().with_context(|| part.name())?;
        part.tree.finish(part.path, meta, self.preserves).with_context(|| part.name())
    }

    /// Copies the data, and returns the length of the source, which may change while it is read.
    fn copy_data(
        &mut self,
        from: TreePath<'_>,
        source: &dyn Reader,
        part: TreePath<'_>,
        target: &dyn Writer,
    ) -> Result<u64> {
        let mut offset = 0;
        loop {
            self.check_interrupted()?;
            let Some(data) = source.next_data(offset).with_context(|| from.name())? else {
                return source.len().map(|len| len.max(offset)).with_context(|| from.name());
            };
            self.progress.inc(data.start.saturating_sub(offset));
            offset = data.start;
            while offset < data.end {
                self.check_interrupted()?;
                let wanted = usize::try_from(data.end - offset).unwrap_or(CHUNK_LEN).min(CHUNK_LEN);
                let len = source.read_at(&mut self.buffer[..wanted], offset).with_context(|| from.name())?;
                if len == 0 {
                    return Ok(offset);
                }
                target.write_all_at(&self.buffer[..len], offset).with_context(|| part.name())?;
                offset += len as u64;
                self.progress.inc(len as u64);
            }
        }
    }

    fn check_interrupted(&self) -> Result<()> {
        if self.is_stopped.load(Ordering::Relaxed) { bail!(super::Interrupted) } else { Ok(()) }
    }
}

/// Checks that the copy does not recurse into its own output.
///
/// # Errors
///
/// Returns an error if the target is the source or lies within it.
fn check_apart(from: TreePath<'_>, to: TreePath<'_>) -> Result<()> {
    let is_directory = from.tree.metadata(from.path, false).is_ok_and(|meta| meta.kind() == Kind::Directory);
    if !is_directory || from.tree.prefix() != to.tree.prefix() {
        return Ok(());
    }
    // A target that does not exist yet is located by its parent.
    let parent = to.path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let to_path = to.tree.canonicalize(to.path).or_else(|_| to.tree.canonicalize(parent));
    let (Ok(from_path), Ok(to_path)) = (from.tree.canonicalize(from.path), to_path) else { return Ok(()) };
    ensure!(!to_path.starts_with(from_path), "{}: cannot copy a directory into itself, to {}", from.name(), to.name());
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{
        io::{self, ErrorKind},
        path::PathBuf,
    };

    use super::*;
    use crate::fs::tree::Host;

    /// The host's files, with a daemon that dies before anything is renamed.
    struct Dying;

    impl Tree for Dying {
        fn prefix(&self) -> &'static str {
            ":"
        }

        fn metadata(&self, path: &Path, follow: bool) -> io::Result<Meta> {
            Host.metadata(path, follow)
        }

        fn canonicalize(&self, path: &Path) -> io::Result<PathBuf> {
            Host.canonicalize(path)
        }

        fn read_dir(&self, path: &Path) -> io::Result<Vec<Vec<u8>>> {
            Host.read_dir(path)
        }

        fn read_link(&self, path: &Path) -> io::Result<Vec<u8>> {
            Host.read_link(path)
        }

        fn open(&self, path: &Path) -> io::Result<Box<dyn Reader + '_>> {
            Host.open(path)
        }

        fn create(&self, path: &Path, mode: u32) -> io::Result<Box<dyn Writer + '_>> {
            Host.create(path, mode)
        }

        fn mkdir(&self, path: &Path, mode: u32) -> io::Result<()> {
            Host.mkdir(path, mode)
        }

        fn symlink(&self, target: &[u8], path: &Path) -> io::Result<()> {
            Host.symlink(target, path)
        }

        fn rename(&self, _: &Path, _: &Path) -> io::Result<()> {
            Err(ErrorKind::NotConnected.into())
        }

        fn remove_file(&self, _: &Path) -> io::Result<()> {
            Err(ErrorKind::NotConnected.into())
        }

        fn finish(&self, path: &Path, meta: &Meta, preserves: bool) -> io::Result<()> {
            Host.finish(path, meta, preserves)
        }
    }

    #[test]
    fn a_part_that_cannot_be_removed_is_told_by_name_and_one_that_was_never_made_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        std::fs::write(&from, "data").unwrap();
        let (progress, is_stopped) = (ProgressBar::hidden(), AtomicBool::new(false));
        let mut failed = |error: &anyhow::Error| panic!("{error:#}");
        let mut copier = Copier::new(&progress, &is_stopped, &mut failed);
        let mut copy = |to: &Path| {
            let copied = copier.copy(TreePath { tree: &Host, path: &from }, TreePath { tree: &Dying, path: to }, true);
            format!("{:#}", copied.unwrap_err())
        };
        let said = copy(&to);
        let part =
            std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let part = part.into_iter().find(|name| name.ends_with(".part")).unwrap();
        assert!(said.contains(&part) && said.contains("cannot remove"), "{said}");
        assert!(!to.exists());
        let said = copy(Path::new("/nonexistent/to"));
        assert!(!said.contains("cannot remove"), "{said}");
    }
}
