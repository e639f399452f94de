//! The atomics of what models try: the processor's, or in the models those that try every order.

#[cfg(not(all(test, feature = "loom")))]
pub(crate) use core::{
    hint::spin_loop,
    sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize},
};
#[cfg(all(test, feature = "loom"))]
pub(crate) use loom::{
    hint::spin_loop,
    sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize},
};

pub(crate) use core::sync::atomic::Ordering;

/// Stands between two accesses, of [`Ordering::SeqCst`], whose order matters: models know it of fences only, the
/// processor of the accesses too.
#[inline]
pub(crate) fn fence_in_models() {
    #[cfg(all(test, feature = "loom"))]
    loom::sync::atomic::fence(Ordering::SeqCst);
}
