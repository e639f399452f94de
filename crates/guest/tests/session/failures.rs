//! Fails every message of a scenario once.

use transom_guest::Errno;

use crate::{peer::in_memory, scenarios::SCENARIOS};

/// Files and directories that remain after a scenario ends early do not count; references and handles do.
#[test]
fn whichever_message_fails_the_references_balance() {
    for (what, scenario) in SCENARIOS {
        let (peer, session) = in_memory();
        scenario(&session).unwrap();
        let count = peer.messages();
        // The listing has hundreds of similar messages.
        for nth in (0..count).step_by(1 + count as usize / 100) {
            let (peer, session) = in_memory();
            peer.fail(nth);
            match scenario(&session) {
                Ok(()) | Err(Errno::NOMEM) => {}
                Err(error) => panic!("{what}, message {nth}: {error}"),
            }
            peer.fail(u64::MAX);
            session.flush_forgets().unwrap();
            assert_eq!(peer.fs().held().lookups, 0, "{what}, message {nth}");
            peer.fs().check_accounts();
            session.destroy().unwrap();
            assert_eq!(peer.fs().held().handles, 0, "{what}, message {nth}");
        }
    }
}
