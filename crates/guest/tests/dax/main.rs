//! Files through a window, with a real server in the same process and a front end that checks each step.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends here")]

mod fake;
mod hostile;
mod model;
mod over_mmio;
mod page_sizes;
#[path = "../volume/paged.rs"]
mod paged;
mod pins;
mod reclaim;
mod touched;
mod unflushed;
mod unlocked;
mod upgrade;
mod user_memory;
mod windowless;

#[path = "../session/memory.rs"]
mod memory;
#[allow(dead_code, reason = "shared with the tests of the session")]
#[path = "../session/peer.rs"]
mod peer;
#[allow(dead_code, reason = "shared with the tests of virtio-mmio")]
#[path = "../mmio/fake.rs"]
mod registers;
