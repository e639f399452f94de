//! The device's shared-memory region in this process: reserved, and mapped piece by piece as the daemon asks.
//!
//! [`area`] has the memory, [`serve`] answers the daemon. Everything is mapped for as long as the device is not reset and
//! somebody has the [`Area`]; once the connection has ended, loads and stores through it fail with ENOTCONN, and what was
//! mapped stays where it is until then: a load by address never finds another's memory.

mod area;
mod serve;

pub use area::Area;
pub(crate) use serve::Served;

/// The longest window, in bytes: a bound for the addresses that a daemon may have reserved here.
pub(crate) const LEN_MAX: u64 = 1 << 40;
/// Ranges are 2 MiB, and so is the alignment of the window: a huge page of a file is then one of the window.
pub(crate) const ALIGNMENT: u64 = 2 << 20;
