//! Which files are mapped.

/// Who decides which files are mapped through the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Dax {
    /// Every regular file is.
    Always,
    /// Those that the server marks (`FUSE_ATTR_DAX`).
    #[default]
    Inode,
    /// None.
    Never,
}

/// What of a volume is mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DaxOptions {
    /// Who decides.
    pub dax: Dax,
    /// A file that is shorter when the volume gets to know it is not mapped, in bytes; 0 for none that is too short.
    pub size_min_bytes: u64,
}

impl Default for DaxOptions {
    /// As the server says, whatever the size.
    fn default() -> Self {
        Self { dax: Dax::Inode, size_min_bytes: 0 }
    }
}
