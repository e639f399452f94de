use proptest::prelude::*;
use rustix::fs::FileType;
use transom_wire::{
    agent::{Changes, EXCHANGE_LEN, VERSION},
    ops::setattr::SetattrValid,
};
use zerocopy::IntoBytes;

use super::*;

const DIR: NodeId = NodeId(7 << 32);
const AGENT: u32 = 40;
const ROOT_HANDLE: Handle = Handle(3);

fn hello() -> [u8; EXCHANGE_LEN] {
    let mut argument = [0; EXCHANGE_LEN];
    let hello = Hello { version: VERSION.into(), ..Hello::default() };
    argument[..size_of::<Hello>()].copy_from_slice(hello.as_bytes());
    argument
}

fn exchange(replays: &Replays) -> Result<Vec<(Kind, Vec<u8>)>, Errno> {
    let reply = replays.exchange(AGENT, ROOT_HANDLE, &hello(), BlockingMode::MustNotBlock)?;
    let (_, changes) = Changes::parse(&reply).unwrap();
    Ok(changes.map(|change| change.map(|change| (change.kind, change.name.to_vec())).unwrap()).collect())
}

fn registered() -> Replays {
    let replays = Replays::default();
    assert_eq!(exchange(&replays), Ok(vec![]));
    replays
}

fn of(kind: Kind, name: &[u8]) -> Change {
    Change::of_name(kind, libc::DT_REG, DIR, name)
}

/// A request of the agent for one name.
fn request(replays: &Replays, pid: u32, kind: Kind, name: &[u8]) -> bool {
    let swallowed = replays.announced(pid, |batch| match kind {
        Kind::Created => batch.make(DIR, name, FileType::RegularFile),
        Kind::Removed => batch.remove(DIR, name, false),
        Kind::Renamed => batch.rename((DIR, name), (DIR, b"new"), false),
        Kind::Exchanged => batch.rename((DIR, name), (DIR, b"new"), true),
        Kind::Modified | Kind::Written | Kind::Closed => batch.open(node(name)),
        Kind::Attributes => batch.set_attributes(node(name), SetattrValid::MODE),
        Kind::Stale => false,
    });
    swallowed.unwrap_or(false)
}

fn node(name: &[u8]) -> NodeId {
    NodeId(u64::from(name[0]) << 32)
}

#[test]
fn only_one_agent_is_registered_until_it_closes_its_handle() {
    let replays = registered();
    let other = replays.exchange(AGENT + 1, Handle(4), &hello(), BlockingMode::MayBlock);
    assert_eq!(other.err(), Some(Errno::BUSY));
    let with_its_handle = replays.exchange(AGENT + 1, ROOT_HANDLE, &hello(), BlockingMode::MayBlock);
    assert_eq!(with_its_handle.err(), Some(Errno::BUSY));
    replays.closed(Handle(4));
    assert!(replays.has_agent());
    replays.closed(ROOT_HANDLE);
    assert!(!replays.has_agent());
    assert!(replays.exchange(AGENT + 1, Handle(4), &hello(), BlockingMode::MayBlock).is_ok());
}

#[test]
fn an_exchange_waits_for_a_change_but_not_forever() {
    let replays = registered();
    assert_eq!(exchange(&replays), Err(Errno::AGAIN));
    let reply = replays.exchange(AGENT, ROOT_HANDLE, &hello(), BlockingMode::MayBlock).unwrap();
    assert_eq!(Changes::parse(&reply).unwrap().0.count.get(), 0);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            loop {
                let reply = replays.exchange(AGENT, ROOT_HANDLE, &hello(), BlockingMode::MayBlock).unwrap();
                if Changes::parse(&reply).unwrap().0.count.get() == 1 {
                    return;
                }
            }
        });
        replays.push(of(Kind::Created, b"a"));
        waiting.join().unwrap();
    });
}

#[test]
fn an_agent_waits_with_one_exchange_at_a_time() {
    let replays = registered();
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let ask = || replays.exchange(AGENT, ROOT_HANDLE, &hello(), BlockingMode::MayBlock).err();
    std::thread::scope(|scope| {
        // One of the two waits nearly always.
        let other = scope.spawn(|| {
            while !is_over.load(Relaxed) {
                if ask() == Some(Errno::BUSY) {
                    is_over.store(true, Relaxed);
                }
            }
        });
        let deadline = Instant::now() + Duration::from_secs(60);
        while !is_over.load(Relaxed) {
            assert!(Instant::now() < deadline, "two exchanges wait");
            if ask() == Some(Errno::BUSY) {
                is_over.store(true, Relaxed);
            }
        }
        other.join().unwrap();
    });
    assert_eq!(ask(), None);
}

#[test]
fn a_wake_announces_nothing_and_registers_nobody() {
    let mut wake = hello();
    let head = Hello { version: VERSION.into(), flags: agent::WAKE.into(), ..Hello::default() };
    wake[..size_of::<Hello>()].copy_from_slice(head.as_bytes());
    let replays = Replays::default();
    let said = |replays: &Replays| {
        let reply = replays.exchange(AGENT + 1, Handle(9), &wake, BlockingMode::MustNotBlock).unwrap();
        Changes::parse(&reply).unwrap().0.count.get()
    };
    assert_eq!((said(&replays), replays.has_agent()), (0, false));
    let replays = registered();
    replays.push(of(Kind::Created, b"a"));
    assert_eq!(said(&replays), 0);
    assert_eq!(exchange(&replays), Ok(vec![(Kind::Created, b"a".to_vec())]));
}

#[test]
fn an_agent_that_lags_behind_does_not_keep_up_until_it_has_caught_up() {
    let replays = registered();
    assert!(!replays.keeps_up(), "it has acknowledged nothing");
    assert_eq!(exchange(&replays), Err(Errno::AGAIN));
    replays.overflow();
    assert!(!replays.keeps_up());
    let reply = replays.exchange(AGENT, ROOT_HANDLE, &hello(), BlockingMode::MustNotBlock).unwrap();
    assert_eq!(Changes::parse(&reply).unwrap().0.is_overflow.get(), 1);
    assert!(!replays.keeps_up(), "it has been told, and has not acknowledged");
    replays.end();
    assert_eq!(exchange(&replays), Err(Errno::NOTTY), "nothing is observed any more");
}

#[test]
fn an_agent_cannot_claim_more_than_it_was_told() {
    let replays = registered();
    replays.push(of(Kind::Created, b"a"));
    replays.push(of(Kind::Created, b"b"));
    exchange(&replays).unwrap();
    let mut claim = hello();
    let head = Hello { version: VERSION.into(), replayed: 1.into(), skipped: u32::MAX.into(), ..Hello::default() };
    claim[..size_of::<Hello>()].copy_from_slice(head.as_bytes());
    for _ in 0..3 {
        let _ = replays.exchange(AGENT, ROOT_HANDLE, &claim, BlockingMode::MustNotBlock);
    }
    let gauges = replays.gauges();
    assert_eq!((gauges.replayed, gauges.skipped, gauges.waiting), (1, 1, 0));
}

#[test]
fn other_messages_are_refused() {
    let replays = Replays::default();
    let with = |argument: &[u8]| replays.exchange(1, Handle(1), argument, BlockingMode::MayBlock).err();
    assert_eq!(with(&[]), Some(Errno::INVAL));
    assert_eq!(with(&[0; EXCHANGE_LEN]), Some(Errno::PROTO));
    assert_eq!(with(&hello()[..EXCHANGE_LEN - 1]), Some(Errno::INVAL));
    assert!(!replays.has_agent());
}

#[test]
fn changes_of_one_name_are_announced_one_after_the_other() {
    let replays = registered();
    for change in [of(Kind::Created, b"a"), of(Kind::Created, b"b"), of(Kind::Removed, b"a"), of(Kind::Created, b"c")] {
        replays.push(change);
    }
    assert_eq!(exchange(&replays), Ok(vec![(Kind::Created, b"a".to_vec()), (Kind::Created, b"b".to_vec())]));
    assert_eq!(exchange(&replays), Ok(vec![(Kind::Removed, b"a".to_vec()), (Kind::Created, b"c".to_vec())]));
    assert_eq!(exchange(&replays), Err(Errno::AGAIN));
}

#[test]
fn repeated_writes_are_one_change() {
    let replays = registered();
    let writes = [Kind::Modified, Kind::Modified, Kind::Closed, Kind::Written, Kind::Attributes, Kind::Attributes];
    writes.into_iter().for_each(|kind| replays.push(of(kind, b"a")));
    assert_eq!(exchange(&replays), Ok(vec![(Kind::Written, b"a".to_vec())]));
    assert_eq!(exchange(&replays), Ok(vec![(Kind::Attributes, b"a".to_vec())]));
}

#[test]
fn a_write_is_not_merged_with_one_of_another_file_of_the_same_name() {
    let replays = registered();
    for object in [b"x", b"y", b"y"] {
        replays.push(of(Kind::Modified, b"a").of_object(Some(node(object))));
    }
    assert_eq!(exchange(&replays), Ok(vec![(Kind::Modified, b"a".to_vec())]));
    assert_eq!(exchange(&replays), Ok(vec![(Kind::Modified, b"a".to_vec())]));
    assert_eq!(exchange(&replays), Err(Errno::AGAIN));
}

#[test]
fn the_link_that_is_gone_is_counted_once_for_the_agent_until_its_removal_is_replayed() {
    let replays = registered();
    let count = |replays: &Replays, pid| replays.announced(pid, |batch| batch.count_link(node(b"x")));
    replays.push(of(Kind::Removed, b"a").of_object(Some(node(b"x"))));
    assert_eq!(count(&replays, AGENT), Some(false), "not announced yet");
    exchange(&replays).unwrap();
    assert_eq!(count(&replays, AGENT + 1), None);
    assert_eq!((count(&replays, AGENT), count(&replays, AGENT)), (Some(true), Some(false)));
    replays.push(of(Kind::Removed, b"b").of_object(Some(node(b"x"))));
    exchange(&replays).unwrap();
    assert!(request(&replays, AGENT, Kind::Removed, b"b"));
    assert_eq!(count(&replays, AGENT), Some(false), "replayed");
}

#[test]
fn what_is_in_use_is_refreshed_after_changes_were_lost_and_until_then_the_agent_does_not_keep_up() {
    let replays = registered();
    assert_eq!(exchange(&replays), Err(Errno::AGAIN));
    assert!(replays.keeps_up() && !replays.is_refresh_due(AGENT, ROOT_HANDLE));
    replays.overflow();
    exchange(&replays).unwrap();
    assert_eq!(exchange(&replays), Err(Errno::AGAIN));
    assert!(replays.is_refresh_due(AGENT, ROOT_HANDLE) && !replays.keeps_up());
    assert!(!replays.is_refresh_due(AGENT + 1, ROOT_HANDLE));
    replays.refresh([Change::of_file(Kind::Stale, libc::DT_REG, node(b"x"))].into_iter());
    assert_eq!(exchange(&replays), Ok(vec![(Kind::Stale, vec![])]));
    assert_eq!(exchange(&replays), Err(Errno::AGAIN));
    assert!(replays.keeps_up() && !replays.is_refresh_due(AGENT, ROOT_HANDLE));
}

#[test]
fn too_many_changes_are_one_message() {
    let replays = registered();
    let push = |number: usize| replays.push(of(Kind::Created, format!("{number}").as_bytes()));
    (0..queue::CHANGES_MAX + 100).for_each(push);
    let reply = replays.exchange(AGENT, ROOT_HANDLE, &hello(), BlockingMode::MustNotBlock).unwrap();
    let (head, changes) = Changes::parse(&reply).unwrap();
    assert_eq!(head.is_overflow.get(), 1);
    let root = changes.map(Result::unwrap).map(|change| (change.parent, change.name)).collect::<Vec<_>>();
    assert_eq!(root, [(NodeId::ROOT, &b""[..])]);
    assert_eq!(replays.counters.overflows.load(Relaxed), 1);
    push(0);
    assert_eq!(exchange(&replays), Ok(vec![(Kind::Created, b"0".to_vec())]));
}

#[test]
fn the_times_of_written_data_are_swallowed_after_the_open_and_no_size_is() {
    let replays = registered();
    replays.names.insert(DIR, b"a", node(b"a"));
    replays.push(of(Kind::Written, b"a"));
    exchange(&replays).unwrap();
    let set = |valid| replays.announced(AGENT, |batch| batch.set_attributes(node(b"a"), valid)).unwrap();
    assert!(!set(SetattrValid::MTIME), "before the open");
    assert!(request(&replays, AGENT, Kind::Written, b"a"));
    assert!(!request(&replays, AGENT, Kind::Written, b"a"), "a second open");
    assert!(!set(SetattrValid::MTIME | SetattrValid::SIZE));
    assert!(!set(SetattrValid::MODE));
    assert!(set(SetattrValid::MTIME | SetattrValid::MTIME_NOW | SetattrValid::FH));
    assert!(!set(SetattrValid::MTIME), "a second time");
}

const KINDS: [Kind; 5] = [Kind::Created, Kind::Removed, Kind::Renamed, Kind::Closed, Kind::Attributes];

#[derive(Debug, Clone)]
enum Step {
    Announce(Kind, u8),
    Request(u32, Kind, u8),
    Exchange,
    Close,
    Register,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let kind = || prop::sample::select(&KINDS[..]);
    let name = b'a'..=b'd';
    let step = prop_oneof![
        4 => (kind(), name.clone()).prop_map(|(kind, name)| Step::Announce(kind, name)),
        8 => (AGENT..=AGENT + 1, kind(), name).prop_map(|(pid, kind, name)| Step::Request(pid, kind, name)),
        3 => Just(Step::Exchange),
        1 => Just(Step::Close),
        2 => Just(Step::Register),
    ];
    prop::collection::vec(step, 1..60)
}

proptest! {
    /// The model is the list of changes of the last exchange: each is swallowed once, for the agent only, until the
    /// next exchange or the agent's end.
    #[test]
    fn a_request_is_swallowed_exactly_if_it_is_announced_and_once(steps in steps()) {
        let replays = Replays::default();
        (b'a'..=b'd').for_each(|name| replays.names.insert(DIR, &[name], node(&[name])));
        let (mut is_registered, mut announced) = (false, Vec::new());
        for step in steps {
            match step {
                Step::Announce(kind, name) => replays.push(match kind {
                    Kind::Renamed => Change::of_names(kind, libc::DT_REG, (DIR, &[name]), (DIR, b"new")),
                    kind => of(kind, &[name]),
                }),
                Step::Request(pid, kind, name) => {
                    let at = announced.iter().position(|known| *known == (kind, vec![name]));
                    let is_due = is_registered && pid == AGENT && at.is_some();
                    prop_assert_eq!(request(&replays, pid, kind, &[name]), is_due);
                    if is_due {
                        announced.remove(at.unwrap());
                    }
                }
                Step::Exchange | Step::Register => match exchange(&replays) {
                    Ok(changes) => {
                        is_registered = true;
                        announced = changes;
                    }
                    Err(errno) => prop_assert_eq!(errno, Errno::AGAIN),
                },
                Step::Close => {
                    replays.closed(ROOT_HANDLE);
                    is_registered = false;
                    announced.clear();
                }
            }
        }
    }
}
