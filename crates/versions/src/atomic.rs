//! The atomics of the table: the processor's or, in models, those that try every order.

#[cfg(not(all(test, feature = "loom")))]
pub use core::sync::atomic::AtomicU64;
#[cfg(not(all(test, feature = "loom")))]
use core::sync::atomic::fence;
#[cfg(all(test, feature = "loom"))]
pub use loom::sync::atomic::AtomicU64;
#[cfg(all(test, feature = "loom"))]
use loom::sync::atomic::fence;

pub(crate) use core::sync::atomic::Ordering;

/// Loads a word of the table; later loads and stores of this thread come after it.
///
/// A relaxed load and a fence rather than an acquiring load: only relaxed loads may be used on memory that is mapped
/// for reading only.
#[inline]
pub(crate) fn load(word: &AtomicU64) -> u64 {
    let value = word.load(Ordering::Relaxed);
    fence(Ordering::Acquire);
    u64::from_le(value)
}
