//! `transom run --kernel-with-versions`: two guests of one coherence group, whose kernels cache without time-outs. One
//! changes something, and the other looks at it at once ([`looks`]). Events are off, so that only the version table can
//! tell the other guest.

mod guest;
mod looks;
mod search;

use std::{env, path::Path, process::Command, thread};

use guest::{Guest, Place, Vmm};
use looks::{Look, looks};
use transom_metrics::families::DEFERRED;
use transom_vm::{
    packages::{Cache, OnStderr},
    tools::Tools,
};

/// Returns whether such guests cannot run here, and prints the reason.
fn is_skipped(vmm: Vmm, test: &str) -> bool {
    let daemon = Path::new(env!("CARGO_BIN_EXE_transom")).with_file_name("transomd");
    let reason = match Cache::locate() {
        Err(error) => error.to_string(),
        Ok(_) if !daemon.is_file() => format!("no daemon {daemon:?}; build transomd"),
        Ok(cache) => {
            let report = OnStderr::default();
            let tools = Tools::new(&cache, &report);
            let found = match vmm {
                Vmm::Uml => tools.uml_kernel_with_versions(None).map(drop),
                Vmm::Qemu => tools.qemu_with_window(None).and_then(|_| tools.kernel_with_versions(None)).map(drop),
            };
            match found {
                Ok(()) => return false,
                Err(error) => error.to_string(),
            }
        }
    };
    eprintln!("SKIPPED: {test}: {reason}");
    true
}

/// Lets one guest change and the other look, in turns. Returns how often the other got what was expected, and
/// describes each time that it did not.
fn play(guests: &mut [Guest; 2], rounds: usize) -> (usize, Vec<String>) {
    let (mut right, mut stale) = (0, Vec::new());
    for round in 0..rounds {
        let [first, second] = guests;
        let (changer, looker) = if round % 2 == 0 { (first, second) } else { (second, first) };
        for look in looks(round) {
            looker.ask(&look.look);
            changer.ask(&look.change);
            match looker.ask(&look.look) {
                found if found == look.expected => right += 1,
                found => stale.push(format!(
                    "{} (round {round}): {found:?} instead of {:?}, after {:?}",
                    look.what, look.expected, look.change
                )),
            }
        }
    }
    (right, stale)
}

#[track_caller]
fn assert_never_stale(vmm: Vmm, share_options: &str, rounds: usize) {
    let place = Place::new(share_options);
    let start = || Guest::start(vmm, &place, &[]);
    let (right, stale) = play(&mut [start(), start()], rounds);
    assert!(stale.is_empty(), "{} stale of {}:\n{}", stale.len(), stale.len() + right, stale.join("\n"));
    assert_eq!(right, rounds * looks(0).len());
}

#[test]
fn a_guest_sees_at_once_what_another_guest_has_changed() {
    if !is_skipped(Vmm::Uml, "a_guest_sees_at_once") {
        assert_never_stale(Vmm::Uml, "", 12);
    }
}

#[test]
#[ignore = "takes minutes"]
fn a_guest_sees_at_once_what_another_guest_has_changed_often() {
    if !is_skipped(Vmm::Uml, "a_guest_sees_at_once_often") {
        assert_never_stale(Vmm::Uml, "", 1000);
    }
}

#[test]
#[ignore = "builds a kernel, which takes minutes"]
fn over_pci_a_guest_sees_at_once_what_another_guest_has_changed() {
    if !is_skipped(Vmm::Qemu, "over_pci_a_guest_sees_at_once") {
        assert_never_stale(Vmm::Qemu, "", 2);
    }
}

#[test]
#[ignore = "builds a kernel, which takes minutes"]
fn over_pci_beside_a_window_a_guest_sees_at_once_what_another_guest_has_changed() {
    if !is_skipped(Vmm::Qemu, "over_pci_beside_a_window") {
        assert_never_stale(Vmm::Qemu, ",dax=16M", 1);
    }
}

/// The requests that fetch something, by their names.
const FETCHES: [&str; 7] = ["lookup", "getattr", "statx", "read", "readdir", "readdirplus", "readlink"];

/// How many of some of them there were.
#[derive(Debug, PartialEq, Eq)]
struct Asked {
    lookup: u64,
    getattr: u64,
    read: u64,
}

/// A guest, and what tells what it has asked and which of its requests went to the daemon's pool.
fn counted(place: &Place) -> (Guest, impl Fn() -> ([u64; FETCHES.len()], u64)) {
    let metrics = place.path("metrics");
    let option = format!("--daemon-arg=--metrics-socket={}", metrics.display());
    let guest = Guest::start(Vmm::Uml, place, &[&option]);
    let counts = move || {
        let report = transom_vm::metrics::read(&metrics).unwrap();
        let operation = |name| report.operations.iter().find(|of| of.operation == name).map_or(0, |of| of.count);
        let deferred = report.counters.iter().find(|of| of.name == DEFERRED.name).unwrap().value;
        (FETCHES.map(operation), deferred)
    };
    (guest, counts)
}

/// Runs a search for one stale answer in both guests at once.
fn search_in(guests: &mut [Guest; 2], rounds: u64, looks: u64) -> search::Found {
    let found = thread::scope(|scope| {
        let running: Vec<_> = (guests.iter_mut().enumerate())
            .map(|(member, guest)| scope.spawn(move || search::run(guest, member, rounds, looks)))
            .collect();
        running.into_iter().map(|search| search.join().unwrap()).collect::<Vec<_>>()
    });
    found.into_iter().fold(search::Found::default(), |mut sum, found| {
        sum.checks += found.checks;
        sum.changes += found.changes;
        sum.stale.extend(found.stale);
        sum
    })
}

fn assert_search_finds_nothing(rounds: u64, looks: u64) {
    let place = Place::new("");
    search::prepare(&place);
    let mut guests = [(); 2].map(|()| Guest::start(Vmm::Uml, &place, &[]));
    let found = search_in(&mut guests, rounds, looks);
    println!("{} checks after {} changes, {} stale", found.checks, found.changes, found.stale.len());
    assert!(found.stale.is_empty(), "{}", found.stale.join("\n"));
    assert_eq!(found.changes, 2 * rounds);
}

#[test]
fn programs_in_two_guests_find_nothing_stale() {
    if !is_skipped(Vmm::Uml, "programs_in_two_guests") {
        assert_search_finds_nothing(100, 4);
    }
}

/// With `TRANSOM_TEST_ROUNDS`, as many rounds.
#[test]
#[ignore = "takes minutes"]
fn programs_in_two_guests_find_nothing_stale_in_many_rounds() {
    if !is_skipped(Vmm::Uml, "programs_in_two_guests_in_many_rounds") {
        let rounds = env::var("TRANSOM_TEST_ROUNDS").map_or(20_000, |rounds| rounds.parse().unwrap());
        assert_search_finds_nothing(rounds, 10);
    }
}

/// What runs in the guests of a search.
#[test]
#[ignore = "runs in a guest"]
fn search_in_a_guest() {
    search::play();
}

/// What a guest has cached survives its own changes: it fetches only what a change leaves unknown.
///
/// In about one of a hundred guests, two inodes share a slot of the table by chance, and it may fetch more. Another
/// table has another key.
#[test]
fn what_only_this_guest_changes_is_not_fetched_again() {
    if is_skipped(Vmm::Uml, "what_only_this_guest_changes") {
        return;
    }
    for _ in 0..5 {
        let place = Place::new("");
        let (wrong, inodes) = fetched_after_own_changes(&place);
        let slots = place.slots(&inodes).len();
        if slots == inodes.len() {
            assert!(wrong.is_empty(), "{wrong:#?}");
            return;
        }
        println!("{} inodes have {slots} slots; fetched without need: {wrong:?}", inodes.len());
    }
    panic!("inodes shared slots in each of five tables");
}

/// Changes something in a guest. Returns what was fetched without need, and the inodes of the share.
fn fetched_after_own_changes(place: &Place) -> (Vec<String>, Vec<u64>) {
    const ROUNDS: u64 = 20;
    let (mut guest, counts) = counted(place);
    let mut count = |what: &str, round: &dyn Fn(u64) -> String| {
        guest.ask(&round(0));
        let (before, deferred) = counts();
        (1..=ROUNDS).for_each(|number| drop(guest.ask(&round(number))));
        let (after, deferred_after) = counts();
        let asked: [u64; FETCHES.len()] = std::array::from_fn(|at| after[at] - before[at]);
        let line: Vec<_> = FETCHES.iter().zip(asked).map(|(name, asked)| format!("{name} {asked}")).collect();
        println!("{ROUNDS} times {what}: {}; {} by the pool", line.join(", "), deferred_after - deferred);
        let of = |name| asked[FETCHES.iter().position(|fetch| *fetch == name).unwrap()];
        Asked { lookup: of("lookup"), getattr: of("getattr"), read: of("read") }
    };
    // Opened without truncating it.
    let write = count("write and read", &|round| format!("echo {} 1<> data; cat data", 10 + round));
    let stat = count("write and stat", &|round| format!("echo {} 1<> data; stat -c %s data", 10 + round));
    let chmod = count("chmod and stat", &|round| format!("chmod 6{}4 moded; stat -c %a moded", round % 8));
    let create = count("create beside others", &|round| {
        format!("> tree/new{round}; cat tree/file; [ -e tree/absent ]; [ -e held ]")
    });
    let rename = count("rename and read", &|round| match round {
        0 => "mv log log0; cat log0".into(),
        _ => format!("mv log{} log{round}; cat log{round}", round - 1),
    });
    let inodes = place.inodes();
    let remove = count("remove beside others", &|round| format!("rm tree/new{round}; [ -e tree/file ]; [ -e held ]"));
    let none = Asked { lookup: 0, getattr: 0, read: 0 };
    // The times of what was written are the server's.
    let times = Asked { lookup: 0, getattr: ROUNDS, read: 0 };
    let checks = [
        ("name, size or data of what was written", write == none, write),
        ("more than the times of what was written", stat == times, stat),
        ("attributes that the reply to SETATTR has", chmod == none, chmod),
        ("more than the new name", create.lookup <= ROUNDS && create.read == 0, create),
        ("the data of what has another name", rename.read == 0, rename),
        ("other names than the removed one", (remove.lookup, remove.read) == (0, 0), remove),
    ];
    let wrong = checks.into_iter().filter(|(_, is_right, _)| !is_right);
    (wrong.map(|(what, _, asked)| format!("{what}: {asked:?}")).collect(), inodes)
}

#[test]
fn what_nobody_changes_is_fetched_once() {
    if is_skipped(Vmm::Uml, "what_nobody_changes") {
        return;
    }
    let place = Place::new("");
    let (mut guest, counts) = counted(&place);
    let look = "cat data tree/file; stat -c %a moded; ls dir; readlink sym; [ -e absent ] || echo none";
    // The second look still asks for the times of access that the first one changed.
    let shown = [guest.ask(look), guest.ask(look)];
    let before = counts().0;
    for _ in 0..20 {
        assert_eq!(guest.ask(look), shown[0]);
    }
    assert_eq!(counts().0, before);
}

/// Guests with a table that nobody stamps: their daemons are in another group. Whatever is looked at is cached, and so
/// every look can find something stale.
#[test]
fn without_stamps_every_look_finds_something_stale() {
    if is_skipped(Vmm::Uml, "without_stamps") {
        return;
    }
    let place = Place::new("");
    let other = in_group(&place, "another");
    // Leaves a table.
    drop(Guest::start(Vmm::Uml, &place, &[]));
    let start = || Guest::start(Vmm::Uml, &place, &[&other]);
    assert_all_stale(&mut [start(), start()]);
}

/// Guests in different groups: each has a mirror that only its own daemon writes.
#[test]
#[ignore = "builds a kernel, which takes minutes"]
fn over_pci_without_stamps_every_look_finds_something_stale() {
    if is_skipped(Vmm::Qemu, "over_pci_without_stamps") {
        return;
    }
    let place = Place::new("");
    // Otherwise each daemon would stamp what the other one changes, a moment later.
    let quiet = "--daemon-arg=--host-changes=never";
    let start = |name: &str| Guest::start(Vmm::Qemu, &place, &[&in_group(&place, name), quiet]);
    assert_all_stale(&mut [start("one"), start("other")]);
}

/// Returns the option by which the daemon is in another group than the place's.
fn in_group(place: &Place, name: &str) -> String {
    format!("--daemon-arg=--coherence-group={}", place.path(name).display())
}

#[track_caller]
fn assert_all_stale(guests: &mut [Guest; 2]) {
    let (_, stale) = play(guests, 4);
    let is_stale = |look: &Look| stale.iter().any(|line| line.starts_with(look.what));
    let missed: Vec<_> = looks(0).into_iter().filter(|look| !is_stale(look)).map(|look| look.what).collect();
    assert!(missed.is_empty(), "never stale, even without stamps: {missed:?}");
}

#[test]
fn what_is_missing_for_version_tables_is_named() {
    let place = Place::new("");
    let share = place.share();
    let refused = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_transom"));
        command.args(["run", "--kernel-with-versions", "--share", &share]).args(arguments).args(["--", "true"]);
        let output = command.env("TRANSOM_BUSYBOX", env!("CARGO_BIN_EXE_transom")).output().unwrap();
        assert_eq!(output.status.code(), Some(125));
        String::from_utf8(output.stderr).unwrap()
    };
    for (arguments, reason) in [
        (&["--vmm=uml"][..], "needs --coherence-group GROUP"),
        (
            &["--vmm=uml", "--coherence-group=/nonexistent/group", "--kernel=/bin/sh"],
            "\"/bin/sh\" does not read version tables: build it with the patch",
        ),
    ] {
        let said = refused(arguments);
        assert!(said.contains(reason), "{arguments:?}: {said}");
    }
}
