//! Which files are mapped.

/// Which files are mapped through the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Dax {
    /// Every regular file.
    Always,
    /// Files that the server marks (`FUSE_ATTR_DAX`).
    #[default]
    Inode,
    /// No files.
    Never,
}

/// What is mapped of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DaxOptions {
    /// Which files are mapped.
    pub dax: Dax,
    /// Minimum size in bytes: a file that is shorter when the volume first sees it is not mapped. 0 sets no minimum.
    pub size_min_bytes: u64,
}

impl Default for DaxOptions {
    /// Maps the files that the server marks, whatever their size.
    fn default() -> Self {
        Self { dax: Dax::Inode, size_min_bytes: 0 }
    }
}
