//! Spreads threads over the stripes of a structure, so that few write to the same cache line.

use std::{
    cell::Cell,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

/// Returns the calling thread's stripe out of `count`, always the same for the same count.
pub(crate) fn of_this_thread(count: usize) -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static MINE: Cell<usize> = const { Cell::new(usize::MAX) };
    }
    let mut mine = MINE.get();
    if mine == usize::MAX {
        mine = NEXT.fetch_add(1, Relaxed) & !(1 << (usize::BITS - 1));
        MINE.set(mine);
    }
    mine % count
}
