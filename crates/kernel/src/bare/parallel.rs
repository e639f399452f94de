//! Two processors that use a share at once.

use alloc::{format, string::String, vec};
use core::array;

use transom_guest::{Errno, fs::Fs};

use super::{
    Failure, arch,
    console::say,
    interrupts::{self, VECTORS},
    jobs,
    platform::{Bare, LOST_NS},
    processors::{self, PROCESSORS_MAX, Tally},
    scenario::expect,
    share::Share,
};

/// Rounds of both processors. There are more if one of them has not slept by then.
const ROUNDS_MIN: usize = 20;

/// Bytes that a processor writes in a round.
const WRITTEN_LEN: usize = 100_000;

/// Which request queues the processors use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Queues {
    /// Each its own.
    Own,
    /// The first one.
    Shared,
}

/// Has both processors read, write and change names until each has slept and has been woken.
///
/// There is no polling: a processor whose reply has not come halts until it is interrupted, by the device or by the
/// other processor. Nothing else ends a halt but the timer, which is set to [`LOST_NS`].
pub(super) fn run(share: &Share, name: &str, queues: Queues) -> Result<(), Failure> {
    processors::reset();
    let (before, vectors_before) = (requests(share), interrupts::counts());
    let begun_ns = arch::now_ns();
    let mut round = 0;
    while round < ROUNDS_MIN || !all_were_woken(&processors::tally()) {
        if arch::now_ns() - begun_ns > LOST_NS {
            return Err(format!("a processor was not woken: {:?}", processors::tally()).into());
        }
        let fs_of = |number: u16| share.fs().with_queue(if queues == Queues::Own { number } else { 0 });
        let (ours, theirs) = (fs_of(0), fs_of(1));
        jobs::on_both(move || work(&ours, round), move || work(&theirs, round));
        round += 1;
    }
    let after = requests(share);
    let sent = [0, 1].map(|queue| after[queue] - before[queue]);
    let Tally { sleeps, devices, calls, alarms } = processors::tally();
    say!("ok: two processors, {name}: requests {sent:?}");
    say!("ok: two processors, {name}: sleeps {sleeps:?}");
    say!("ok: two processors, {name}: interrupts {devices:?}");
    say!("ok: two processors, {name}: calls {calls:?}");
    say!("ok: two processors, {name}: alarms {alarms:?}");
    let now = interrupts::counts();
    let vectors: [u64; VECTORS] = array::from_fn(|vector| now[vector] - vectors_before[vector]);
    say!("ok: two processors, {name}: vectors {vectors:?}");
    Ok(())
}

fn requests(share: &Share) -> [u64; PROCESSORS_MAX] {
    [0, 1].map(|queue| share.queue_counts(queue).sent)
}

fn all_were_woken(tally: &Tally) -> bool {
    (0..PROCESSORS_MAX).all(|number| tally.sleeps[number] > 0 && tally.devices[number] + tally.calls[number] > 0)
}

/// One processor's part: files of its own, and a directory that both use.
fn work(fs: &Fs<Bare>, round: usize) -> Result<(), Errno> {
    let number = arch::number();
    let path = |name: &str| -> String { format!("{name}{number}") };
    let written = vec![(round * PROCESSORS_MAX + number) as u8; WRITTEN_LEN];
    let file = fs.create(path("written"))?;
    file.write_all(&written)?;
    file.sync_all()?;
    file.close()?;
    fs.rename(path("written"), path("renamed"))?;
    let mut read = vec![0; WRITTEN_LEN + 1];
    expect(fs.open_read(path("renamed"))?.read_at(0, &mut read)? == WRITTEN_LEN)?;
    expect(read[..WRITTEN_LEN] == written)?;
    for len in 1..10 {
        expect(fs.metadata(format!("many/file{len}"))?.len() == len)?;
    }
    fs.remove_file(path("renamed"))?;
    expect(fs.exists(path("renamed")) == Ok(false))
}
