//! The atomics of the concurrent part: the processor's, or in the models those that try every order.

#[cfg(not(all(test, feature = "loom")))]
pub(super) use core::{
    hint::spin_loop,
    sync::atomic::{AtomicBool, AtomicU32, AtomicU64},
};
#[cfg(all(test, feature = "loom"))]
pub(super) use loom::{
    hint::spin_loop,
    sync::atomic::{AtomicBool, AtomicU32, AtomicU64},
};

pub(super) use core::sync::atomic::Ordering;
