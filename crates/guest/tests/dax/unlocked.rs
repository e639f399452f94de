//! No request is sent, and nothing is flushed, while an entry of a mapped file is locked.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use transom_guest::{
    Platform as _,
    dax::{
        RANGE_LEN,
        backing::FileBacking,
        entry::Order,
        fault::{Fault, FaultOutcome, Intent, View},
        mapped::Mapped,
    },
    fs::OpenOptions,
};
use transom_wire::Opcode;

use crate::{
    fake::{Ticking, share_with_peer},
    unflushed::Blind,
};

const HUGE: u64 = Ticking::PAGE_SIZE.pages_per_huge();

/// Returns whether an entry of the 2 MiB with number `index` is locked. An entry that is only young is idle at the
/// second try.
fn is_locked(mapped: &Mapped<Ticking>, index: u64) -> bool {
    mapped.tree().try_lock_idle(index).is_none() && mapped.tree().try_lock_idle(index).is_none()
}

#[test]
fn a_fault_asks_for_the_size_and_syncs_and_a_flush_sends_with_nothing_locked() {
    let (_dir, _window, fs, peer) = share_with_peer(4);
    let file = fs.open("file", &OpenOptions::new().read(true).write(true)).unwrap();
    // The second 2 MiB lie half within the file.
    file.set_len(RANGE_LEN + RANGE_LEN / 2).unwrap();
    let (mapped, view) = (file.inode().ranges().unwrap().mapped(), Arc::new(Blind));
    mapped.attach(Arc::clone(&view) as Arc<dyn View>);

    // 1. The size is requested, because a durable store allocates storage within the file.
    let asked = Arc::new(AtomicU32::new(0));
    peer.meanwhile(Opcode::Getattr, {
        let (mapped, asked) = (Arc::clone(&mapped), Arc::clone(&asked));
        move || asked.store(1 + u32::from(is_locked(&mapped, 1)), Ordering::Relaxed)
    });
    // 2. Then the page's storage allocation is made durable.
    let mut synced = None;
    let fault = Fault { page: HUGE + 1, order: Order::Huge, intent: Intent::StoreSync };
    let outcome = mapped.fault_through(&FileBacking::new(file.inode()), &*view, fault, |_| {
        synced = Some(is_locked(&mapped, 1));
        Ok(())
    });
    assert_eq!(outcome, FaultOutcome::Installed);
    assert_eq!(asked.load(Ordering::Relaxed), 1, "0 is for no request, 2 for one with the entry locked");
    assert_eq!(synced, Some(false));

    // 3. Stores are flushed.
    let mut flushed = None;
    let flush = |_| {
        flushed = Some(is_locked(&mapped, 1));
        Ok(())
    };
    mapped.write_back(0..u64::MAX, flush).unwrap();
    assert_eq!(flushed, Some(false));
    mapped.detach(&(view as Arc<dyn View>));
}
