//! How a workload maps a file.

/// How a file is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapHow {
    /// Shared and writable, else private and for reading.
    pub is_shared: bool,
    /// By which entries of page tables.
    pub entries: Entries,
}

/// Entries of page tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entries {
    /// Whatever is usual.
    Usual,
    /// Of 4 KiB.
    Small,
    /// Of 2 MiB, where the file has pages of that size.
    Huge,
}

impl MapHow {
    /// As programs are loaded.
    pub const PRIVATE: Self = Self { is_shared: false, entries: Entries::Usual };
    /// As databases do it.
    pub const SHARED: Self = Self { is_shared: true, entries: Entries::Usual };
}
