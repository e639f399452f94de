//! INIT and DESTROY.

use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use transom_guest::{
    Errno,
    channel::Channel,
    session::{Caller, Negotiated, PAGE_LEN, SessionConfig, SessionError},
};
use transom_wire::{
    NodeId, Opcode,
    ops::init::{InitFlags, InitOut},
};
use zerocopy::{FromBytes, IntoBytes};

use crate::{
    peer::{ROOT, in_memory, name},
    script::{Script, init_out, reply, session_with},
};

fn settle(out: InitOut, config: SessionConfig) -> Result<Negotiated, SessionError> {
    let script = Script::new(move |header, _| reply(header, 0, out.as_bytes()));
    script.begin(config).map(|session| *session.negotiated())
}

#[test]
fn a_session_with_a_real_server_takes_what_both_know() {
    let (peer, session) = in_memory();
    let negotiated = session.negotiated();
    assert_eq!(negotiated.minor, 45);
    assert!(negotiated.flags.contains(InitFlags::MAX_PAGES | InitFlags::SETXATTR_EXT | InitFlags::CREATE_SUPP_GROUP));
    assert!(!negotiated.flags.intersects(InitFlags::HANDLE_KILLPRIV_V2 | InitFlags::WRITEBACK_CACHE));
    assert_eq!(negotiated.data_len_max, peer.data_len_max(), "the channel carries less than the server");
    assert_eq!(negotiated.max_write, peer.data_len_max());
}

#[test]
fn numbers_out_of_range_are_brought_into_it() {
    let mut out = init_out(InitFlags::all());
    (out.max_write, out.time_gran, out.max_pages, out.max_background) = (1.into(), 0.into(), 0.into(), 0.into());
    out.max_readahead = u32::MAX.into();
    let negotiated = settle(out, SessionConfig::default()).unwrap();
    assert_eq!((negotiated.max_write, negotiated.data_len_max), (PAGE_LEN, PAGE_LEN));
    assert_eq!((negotiated.time_gran, negotiated.max_background, negotiated.max_readahead), (1, 1, 1 << 20));

    let negotiated = settle(init_out(InitFlags::empty()), SessionConfig::default()).unwrap();
    assert_eq!(
        (negotiated.data_len_max, negotiated.max_write),
        (32 * PAGE_LEN, PAGE_LEN),
        "neither MAX_PAGES nor BIG_WRITES"
    );
}

#[test]
fn numbers_in_range_are_taken_as_they_are() {
    for time_gran in [1, 100, 1_000_000_000] {
        let out = InitOut { time_gran: time_gran.into(), ..init_out(InitFlags::empty()) };
        assert_eq!(settle(out, SessionConfig::default()).unwrap().time_gran, time_gran);
    }
    // virtio-fs begins with 7.31.
    let out = InitOut { minor: 31.into(), ..init_out(InitFlags::empty()) };
    assert_eq!(settle(out, SessionConfig::default()).unwrap().minor, 31);
}

/// READDIRPLUS_AUTO says when to use READDIRPLUS, which the other flag allows.
#[test]
fn readdirplus_at_will_needs_readdirplus() {
    let both = InitFlags::DO_READDIRPLUS | InitFlags::READDIRPLUS_AUTO;
    let taken = |flags| settle(init_out(flags), SessionConfig::default()).unwrap().flags & both;
    assert_eq!(taken(both), both);
    assert_eq!(taken(InitFlags::READDIRPLUS_AUTO), InitFlags::empty());
    assert_eq!(taken(InitFlags::DO_READDIRPLUS), InitFlags::DO_READDIRPLUS);
}

#[test]
fn a_feature_that_was_ruled_out_is_asked_for_only_by_force() {
    let config = SessionConfig::default().without(InitFlags::WRITEBACK_CACHE);
    let taken = |config| settle(init_out(InitFlags::all()), config).unwrap().flags;
    let asked = InitFlags::WRITEBACK_CACHE | InitFlags::HANDLE_KILLPRIV_V2;
    assert_eq!(taken(config.unless_refused(asked)) & asked, InitFlags::HANDLE_KILLPRIV_V2);
    assert_eq!(taken(SessionConfig::default().unless_refused(asked)) & asked, asked);
    assert_eq!(taken(config.with(asked)) & asked, asked);
}

#[test]
fn what_was_not_offered_is_not_taken() {
    let negotiated = settle(init_out(InitFlags::all()), SessionConfig::default()).unwrap();
    assert!(!negotiated.flags.intersects(InitFlags::PASSTHROUGH | InitFlags::WRITEBACK_CACHE | InitFlags::ALLOW_IDMAP));
    assert!(!negotiated.flags.contains(InitFlags::EXPLICIT_INVAL_DATA), "AUTO_INVAL_DATA overrules it");
    let config = SessionConfig::default().with(InitFlags::WRITEBACK_CACHE).without(InitFlags::POSIX_LOCKS);
    let negotiated = settle(init_out(InitFlags::all()), config).unwrap();
    assert!(negotiated.flags.contains(InitFlags::WRITEBACK_CACHE));
    assert!(!negotiated.flags.contains(InitFlags::POSIX_LOCKS));
}

#[test]
fn the_upper_flags_count_only_with_init_ext() {
    let mut out = init_out(InitFlags::all());
    out.flags = (out.flags.get() & !(InitFlags::INIT_EXT.bits() as u32)).into();
    assert!(!settle(out, SessionConfig::default()).unwrap().flags.contains(InitFlags::CREATE_SUPP_GROUP));
}

#[test]
fn an_impossible_answer_is_refused_with_its_numbers() {
    let with = |change: fn(&mut InitOut)| {
        let mut out = init_out(InitFlags::all());
        change(&mut out);
        let config = SessionConfig::default().with(InitFlags::MAP_ALIGNMENT);
        settle(out, config).unwrap_err().to_string()
    };
    assert_eq!(with(|out| out.major = 8.into()), "the server speaks FUSE 8, not 7");
    assert_eq!(with(|out| out.minor = 26.into()), "the server speaks FUSE 7.26, which is older than 7.27");
    assert_eq!(
        with(|out| out.map_alignment = 22.into()),
        "the server aligns mappings to 2^22 bytes, the limit is 2^21"
    );

    let refusing = Script::new(|header, _| reply(header, -71, &[]));
    assert_eq!(refusing.begin(SessionConfig::default()).err(), Some(SessionError::Refused(Errno::PROTO)));
    let short = Script::new(|header, _| reply(header, 0, &[7; 8]));
    assert_eq!(short.begin(SessionConfig::default()).err(), Some(SessionError::Impossible { written_bytes: 24 }));
    let mut narrow = Script::new(|_, _| panic!("nothing is sent"));
    Arc::get_mut(&mut narrow).unwrap().data_len_max = 4095;
    assert_eq!(narrow.begin(SessionConfig::default()).err(), Some(SessionError::Narrow { data_len_max: 4095 }));

    let mut page = Script::new(|header, _| reply(header, 0, init_out(InitFlags::all()).as_bytes()));
    Arc::get_mut(&mut page).unwrap().data_len_max = 4096;
    assert_eq!(page.begin(SessionConfig::default()).unwrap().negotiated().data_len_max, 4096);
}

#[test]
fn an_older_server_that_answers_less_is_taken() {
    let mut out = init_out(InitFlags::BIG_WRITES);
    out.minor = 31.into();
    let script = Script::new(move |header, _| reply(header, 0, &out.as_bytes()[..24]));
    let session = script.begin(SessionConfig::default()).unwrap();
    assert_eq!(session.negotiated().minor, 31);
    script.turn(|header, _| reply(header, 0, &[]));
}

#[test]
fn destroy_is_sent_once_and_dropping_is_enough() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&seen);
    let (_script, session) = session_with(InitFlags::empty(), move |header, _| {
        sink.lock().unwrap().push(header.opcode.get());
        reply(header, 0, &[])
    });
    session.destroy().unwrap();
    session.destroy().unwrap();
    drop(session);
    assert_eq!(*seen.lock().unwrap(), [Opcode::Destroy as u32]);

    let (peer, session) = in_memory();
    let entry = session.mkdir(&ROOT, NodeId::ROOT, name("d"), 0o755).unwrap();
    session.forget(entry.nodeid.into(), 1);
    drop(session);
    assert_eq!(peer.fs().held().lookups, 0);
}

#[test]
fn a_server_that_says_nothing_to_destroy_is_done() {
    let (_script, session) = session_with(InitFlags::empty(), |_, _| (Vec::new(), 0));
    assert_eq!(session.destroy(), Ok(()));
    assert_eq!(session.counters().impossible_replies, 0);
}

#[test]
fn threads_share_a_session_and_each_gets_its_own_answers() {
    let (peer, session) = in_memory();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let session = &session;
            scope.spawn(move || {
                for round in 0..100 {
                    let child = format!("{thread}.{round}");
                    let child = name(&child);
                    let caller = Caller { queue: thread, ..ROOT };
                    let made = session.mkdir(&caller, NodeId::ROOT, child, 0o700).unwrap();
                    let found = session.lookup(&caller, NodeId::ROOT, child).unwrap();
                    assert_eq!(made.nodeid, found.nodeid);
                    session.forget(found.nodeid.into(), 2);
                }
            });
        }
    });
    session.flush_forgets().unwrap();
    assert_eq!((peer.fs().held().inodes, peer.fs().held().lookups), (401, 0));
    let counters = session.counters();
    assert_eq!((counters.impossible_replies, counters.requests), (0, 1 + 800 + counters.forget_messages));
}

proptest! {
    /// Whatever the numbers, a session either begins within its bounds or does not begin.
    #[test]
    fn any_answer_gives_a_session_within_bounds_or_none(bytes: [u8; 64], is_seven: bool) {
        let mut out = InitOut::read_from_bytes(&bytes).unwrap();
        if is_seven {
            (out.major, out.minor) = (7.into(), (27 + out.minor.get() % 30).into());
        }
        let config = SessionConfig::default().with(InitFlags::all());
        if let Ok(negotiated) = settle(out, config) {
            prop_assert!((PAGE_LEN..=1 << 20).contains(&negotiated.data_len_max));
            prop_assert!((PAGE_LEN..=negotiated.data_len_max).contains(&negotiated.max_write));
            prop_assert!((27..=45).contains(&negotiated.minor));
            prop_assert!((1..=1_000_000_000).contains(&negotiated.time_gran));
            prop_assert!(negotiated.map_alignment.is_none_or(|log2| log2 <= 21));
        }
    }
}
