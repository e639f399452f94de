//! The atomics of code under model checking: the processor's or, in models, those that try every order.

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

/// A fence between two [`Ordering::SeqCst`] accesses whose order matters: the processor orders such accesses, but
/// models order fences only.
#[inline]
pub(crate) fn fence_in_models() {
    #[cfg(all(test, feature = "loom"))]
    loom::sync::atomic::fence(Ordering::SeqCst);
}
