//! A server that sends arbitrary replies: under a session, or under paths with all the caches above it.

mod bodies;
mod ledger;
mod operations;
mod paths;
mod server;

use std::sync::Arc;

use transom_guest::{
    channel::Channel,
    session::{Session, SessionConfig},
};
use transom_wire::ops::init::InitFlags;

use super::{
    memory::{Pool, Reach},
    platform::Lone,
    tape::Tape,
};
use server::Answers;

/// Pages of the pool that buffers are made of.
const POOL_PAGES: usize = 64;

/// Begins a session with the server of an input and uses it until the input ends.
///
/// # Panics
/// If an impossible reply is accepted, if a reference is not returned exactly once, or if the library would wait
/// forever.
pub fn run(bytes: &[u8]) {
    let tape = Tape::new(bytes);
    let platform = Arc::<Lone>::default();
    let pool = Pool::new(POOL_PAGES);
    let ops = pool.ops(Arc::clone(&platform), transom_guest::dma::WhenFull::Fail, false);
    let server = Arc::new(Answers::new(Arc::clone(&tape), Arc::clone(&ops), Reach::new(&pool)));
    let is_by_path = tape.byte() & 1 != 0;
    let config = SessionConfig::default().with(InitFlags::all());
    match Session::begin(Arc::clone(&server) as Arc<dyn Channel>, platform, config) {
        Ok(session) if is_by_path => paths::until_over(session, &tape, &server),
        Ok(session) => operations::until_over(session, &tape, &server),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    assert_eq!(Arc::strong_count(&server), 1, "the session is kept by something");
    server.check_ended();
    drop(server);
    assert_eq!(ops.counts().pool_used_bytes, 0, "a buffer was not given back");
}
