//! How a workload maps a file.

/// How a file is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapHow {
    /// Shared and writable, otherwise private and read-only.
    pub is_shared: bool,
    /// The page-table entries to use.
    pub entries: Entries,
}

/// Sizes of page-table entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entries {
    /// The default.
    Usual,
    /// 4 KiB.
    Small,
    /// 2 MiB, if the file has pages of that size.
    Huge,
}

impl MapHow {
    /// As the loader maps programs.
    pub const PRIVATE: Self = Self { is_shared: false, entries: Entries::Usual };
    /// As databases map files.
    pub const SHARED: Self = Self { is_shared: true, entries: Entries::Usual };
}
