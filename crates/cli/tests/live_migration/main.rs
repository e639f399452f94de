//! A Linux guest under QEMU moves from one daemon to another while it reads and writes, and finds all as it was.
//!
//! The first machine is a run of the library; each further one has the same command line, and waits for the state of
//! the one before ([`machine`]). [`journey`] is a guest's way, with what it does; after each step its memory is
//! compared ([`memory`]). [`qmp`] tells the machines what to do, [`snapshots`] has what happens within one machine. One
//! case runs by default; the others need virtiofsd, another QEMU, or more time:
//! `cargo test -p transom-cli --test live_migration -- --ignored --nocapture`.

mod journey;
// What the guests of the test of upgrades do, too.
#[path = "../upgrade/load.rs"]
mod load;
mod machine;
mod memory;
mod needs;
mod qmp;
mod snapshots;

use std::{
    path::Path,
    thread,
    time::{Duration, Instant},
};

use journey::{By, Journey, Load};
use needs::{Emulator, Needs};

/// Well above what any step takes on a busy machine, so that only one that hangs reaches it.
const STEP_MAX: Duration = Duration::from_secs(240);

/// Options with which everything travels that can.
const OPTIONS: &[&str] = &["--cache=metadata"];
/// Options with which files travel that were removed while open.
const BY_HANDLE: &[&str] = &["--cache=metadata", "--inode-file-handles=prefer", "--migration-mode=file-handles"];

/// Waits until `condition` has a value.
#[track_caller]
fn wait_for<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(begun.elapsed() < STEP_MAX, "waited {} s for {what}", STEP_MAX.as_secs());
        thread::sleep(Duration::from_millis(20));
    }
}

/// Returns a way from one `transomd` to another.
fn journey<'a>(needs: &'a Needs, daemons: Vec<&'a Path>) -> Journey<'a> {
    Journey { needs, daemons, arguments: OPTIONS, load: Load::Counts, by: By::Socket, before: |_, _| () }
}

#[test]
fn a_guest_moves_between_two_daemons_while_it_writes() {
    let Some(needs) = Needs::find("a_guest_moves", Emulator::New) else { return };
    let way = journey(&needs, vec![&needs.transomd; 2]);
    Journey { arguments: BY_HANDLE, load: Load::Model, ..way }.make();
}

#[test]
#[ignore = "fetches QEMU 10.0"]
fn a_guest_of_qemu_10_moves() {
    let Some(needs) = Needs::find("a_guest_of_qemu_10", Emulator::Of("trixie")) else { return };
    let ours = needs.transomd.as_path();
    let way = journey(&needs, vec![ours; 3]);
    Journey { before: snapshots::cancel_then_save_and_load, ..way }.make();
}

#[test]
#[ignore = "fetches QEMU 7.2"]
fn a_guest_of_qemu_7_stays_where_it_is() {
    let Some(needs) = Needs::find("a_guest_of_qemu_7", Emulator::Of("bookworm")) else { return };
    Journey { before: snapshots::are_refused, ..journey(&needs, vec![&needs.transomd]) }.make();
}

#[test]
#[ignore = "takes a boot of its own"]
fn a_guest_goes_on_after_a_cancelled_migration_and_after_savevm_and_loadvm() {
    let Some(needs) = Needs::find("a_guest_goes_on_after", Emulator::New) else { return };
    let way = journey(&needs, vec![&needs.transomd; 2]);
    Journey { before: snapshots::cancel_then_save_and_load, ..way }.make();
}

#[test]
#[ignore = "takes a boot of its own"]
fn a_guest_goes_through_a_file_and_back() {
    let Some(needs) = Needs::find("a_guest_goes_through_a_file", Emulator::New) else { return };
    let ours = needs.transomd.as_path();
    Journey { by: By::File, ..journey(&needs, vec![ours; 3]) }.make();
}

#[test]
#[ignore = "takes minutes"]
fn a_guest_that_knows_100_000_files_moves_there_and_back() {
    let Some(needs) = Needs::find("a_guest_that_knows_100_000_files", Emulator::New) else { return };
    let ours = needs.transomd.as_path();
    let way = journey(&needs, vec![ours; 3]);
    Journey { arguments: &["--cache=always"], load: Load::Many, before: snapshots::save_and_load, ..way }.make();
}

#[test]
#[ignore = "builds virtiofsd, which takes minutes"]
fn a_guest_moves_from_virtiofsd_and_back_again() {
    let Some(needs) = Needs::find("a_guest_moves_from_virtiofsd", Emulator::New) else { return };
    let Some(virtiofsd) = needs.virtiofsd() else { return };
    let ours = needs.transomd.as_path();
    let way = journey(&needs, vec![&virtiofsd, ours, ours, &virtiofsd, ours]);
    Journey { load: Load::Fsx, ..way }.make();
}

#[test]
#[ignore = "takes a boot of its own"]
fn a_removed_open_file_moves_by_its_handle() {
    let Some(needs) = Needs::find("a_removed_open_file", Emulator::New) else { return };
    let way = journey(&needs, vec![&needs.transomd; 2]);
    Journey { arguments: BY_HANDLE, load: Load::Removed, ..way }.make();
}

#[test]
#[ignore = "moves eight times"]
fn operations_are_as_in_the_model_while_the_guest_moves() {
    let Some(needs) = Needs::find("operations_are_as_in_the_model", Emulator::New) else { return };
    let way = journey(&needs, vec![needs.transomd.as_path(); 9]);
    Journey { arguments: BY_HANDLE, load: Load::Model, ..way }.make();
}

#[test]
#[ignore = "moves eight times"]
fn fsx_finds_no_difference_while_the_guest_moves() {
    let Some(needs) = Needs::find("fsx_finds_no_difference", Emulator::New) else { return };
    let way = journey(&needs, vec![needs.transomd.as_path(); 9]);
    Journey { arguments: BY_HANDLE, load: Load::Fsx, ..way }.make();
}

#[test]
#[ignore = "runs pjdfstest in a guest that moves eight times"]
fn pjdfstest_has_the_same_results_while_the_guest_moves() {
    let Some(needs) = Needs::find("pjdfstest_has_the_same_results", Emulator::New) else { return };
    let way = journey(&needs, vec![needs.transomd.as_path(); 9]);
    Journey { arguments: BY_HANDLE, load: Load::Pjdfstest, ..way }.make();
}

#[test]
#[ignore = "takes a boot of its own"]
fn a_lock_of_the_host_moves_with_its_guest() {
    let Some(needs) = Needs::find("a_lock_of_the_host", Emulator::New) else { return };
    let way = journey(&needs, vec![&needs.transomd; 4]);
    let locks = ["--posix-lock", "--migration-locks=carry"];
    Journey { arguments: &[BY_HANDLE, &locks].concat(), load: Load::Model, ..way }.make();
}

/// What a guest runs.
#[test]
#[ignore = "a case of the other tests, in a guest"]
fn case_load() {
    load::run(Path::new("/share"));
}
