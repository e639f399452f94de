//! Memory of paths, for inodes that are referenced by path: creating a file allocates no path if another was just
//! released.

use std::sync::{Mutex, PoisonError};

use transom_wire::NodeId;

use super::identity::{Hold, Path};
use crate::sysfd::FileHandle;

/// Maximum number of paths whose memory is kept, at most 320 bytes each: enough for programs that create and remove a
/// few files at a time.
const SPARE_PATHS_MAX: usize = 64;

/// Unused paths. Protected by its own lock, within which no other is taken.
#[expect(clippy::vec_box, reason = "an inode refers to its path by a box, whose memory is what is kept")]
#[derive(Debug, Default)]
pub(super) struct SparePaths(Mutex<Vec<Box<Path>>>);

impl SparePaths {
    /// Returns a path in kept memory if there is some, else in new memory.
    pub(super) fn path(&self, parent: NodeId, name: &[u8], handle: Option<FileHandle>) -> Box<Path> {
        let spare = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let Some(mut path) = spare else { return Box::new(Path { parent, name: name.to_vec(), handle }) };
        path.name.clear();
        path.name.extend_from_slice(name);
        (path.parent, path.handle) = (parent, handle);
        path
    }

    /// Keeps the memory of a path that no inode uses any more.
    pub(super) fn keep(&self, hold: Hold) {
        let Hold::Path(path) = hold else { return };
        let mut spares = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if spares.len() < SPARE_PATHS_MAX {
            spares.push(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_in_used_memory_has_nothing_of_the_one_before_and_few_are_kept() {
        let spares = SparePaths::default();
        let paths: Vec<_> = (0..2 * SPARE_PATHS_MAX).map(|_| spares.path(NodeId(2), b"long name", None)).collect();
        paths.into_iter().for_each(|path| spares.keep(Hold::Path(path)));
        assert_eq!(spares.0.lock().unwrap().len(), SPARE_PATHS_MAX);
        let path = spares.path(NodeId(3), b"name", None);
        assert_eq!((path.parent, &*path.name, path.handle.is_none()), (NodeId(3), &b"name"[..], true));
        assert_eq!(spares.0.lock().unwrap().len(), SPARE_PATHS_MAX - 1);
    }
}
