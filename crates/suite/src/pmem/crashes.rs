//! The host's side: virtual machines that store data, and what crashes at random moments leave of the acknowledged
//! stores.
//!
//! Each life of a machine ends with a kill, after which the next one checks the data. Before that it is stopped now and
//! then, and what a kill would have left is checked here ([`Copies`]). Either way, the NVDIMM's file contains what the
//! guest has stored, but nothing that its kernel held only in memory: above all the block addresses of newly stored
//! pages, unless their transaction was committed. Under translation there is no processor cache that could lose data.

use std::{
    fs,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail, ensure};

use super::{
    copies::Copies,
    machine::Machine,
    setting::Way,
    stores::{Found, Notes, Round, verify},
};
use crate::{Verdict, guest::Virtual, job::FileSystem, places::Places};

/// Crashes in one life, where they can be looked at here.
const CRASHES_PER_LIFE: u64 = 20;
/// After the next acknowledgement a crash comes within this time: less than the 5 s after which ext4 commits by itself.
const WAIT_MAX: Duration = Duration::from_millis(1500);
/// An emulated guest on a busy machine.
const BOOT_MAX: Duration = Duration::from_secs(600);
const BETWEEN_LOOKS: Duration = Duration::from_millis(2);

/// What has come of the crashes of one way.
#[derive(Debug, Default)]
struct Sum {
    crashes: u64,
    acknowledged: u64,
    lost: u64,
    /// Crashes that have lost something.
    losing: u64,
}

/// By way.
#[derive(Debug, Default)]
struct Sums([Sum; Way::ALL.len()]);

pub(super) fn run(machine: &Virtual, places: &Places<'_>, on: FileSystem, crashes: u64) -> anyhow::Result<Verdict> {
    let (share, nvdimm) = match super::storage(places, on)? {
        Ok(made) => made,
        Err(skipped) => return Ok(skipped),
    };
    let copies = Copies::new(&places.fresh("copies")?, on)?;
    let lives = lives(crashes, if copies.is_some() { CRASHES_PER_LIFE } else { 1 }, places.seed());
    let machine = Machine::new(machine, &nvdimm, &share, on)?;
    let world = World { machine, share: &share, nvdimm: &nvdimm, copies, on };
    let mut sums = Sums::default();
    let told = |number: usize| format!("machine {number}, {:?}, seed {}", lives[number], places.seed());
    for (number, life) in lives.iter().enumerate() {
        let found = world.live(number as u64, life).with_context(|| told(number))?;
        found.iter().try_for_each(|found| sums.add(life.way, found)).with_context(|| told(number))?;
        if let Some(before) = number.checked_sub(1) {
            sums.add(lives[before].way, &world.found(before as u64)?).with_context(|| told(before))?;
        }
        eprintln!("{}: {} of {} machines: {}", on.name(), number + 1, lives.len(), sums.told());
    }
    let outcome = world.machine.run(&["verify", on.name(), &lives.len().to_string()])?;
    ensure!(outcome.exit_code == 0, "after the last crash: {}", String::from_utf8_lossy(&outcome.stderr));
    let last = lives.len() - 1;
    sums.add(lives[last].way, &world.found(last as u64)?).with_context(|| told(last))?;

    let can_fail = sums.0.iter().any(|sum| sum.lost > 0);
    ensure!(can_fail, "without a synchronous fault nothing is lost, so that this shows nothing: {}", sums.told());
    Ok(Verdict::passed(Some(format!("seed {}: {}", places.seed(), sums.told()))))
}

impl Sums {
    /// Counts what a crash has left. Errors: something is lost that should not be.
    fn add(&mut self, way: Way, found: &Found) -> anyhow::Result<()> {
        ensure!(found.lost == 0 || way == Way::Nothing, "acknowledged stores are lost: {found:?}");
        let sum = &mut self.0[way as usize];
        sum.crashes += 1;
        sum.acknowledged += found.acknowledged;
        sum.lost += found.lost;
        sum.losing += u64::from(found.lost > 0);
        Ok(())
    }

    fn told(&self) -> String {
        let told = |(way, sum): (&Way, &Sum)| {
            let Sum { crashes, acknowledged, lost, losing } = sum;
            format!("{}: {crashes} crashes, {losing} lost {lost} of {acknowledged} stores", way.name())
        };
        Way::ALL.iter().zip(&self.0).map(told).collect::<Vec<_>>().join("; ")
    }
}

/// One machine, from its boot to its kill.
#[derive(Debug)]
struct Life {
    way: Way,
    seed: u64,
    /// When it crashes: so long after the acknowledgement that comes next. The last crash is the kill.
    waits: Vec<Duration>,
}

/// Machines for so many crashes of stores that wait, alternately in both ways, and one whose stores do not.
fn lives(crashes: u64, per_life: u64, seed: u64) -> Vec<Life> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut one = |way, crashes| {
        let waits = (0..crashes).map(|_| WAIT_MAX.mul_f64(random.f64())).collect();
        Life { way, seed: random.u64(..), waits }
    };
    // One of each way at least.
    let per_life = per_life.min(crashes.div_ceil(2)).max(1);
    let mut lives = vec![one(Way::Nothing, per_life)];
    let mut left = crashes;
    while left > 0 {
        let crashes = left.min(per_life);
        lives.push(one(if lives.len() % 2 == 1 { Way::MapSync } else { Way::Requests }, crashes));
        left -= crashes;
    }
    lives
}

/// What lives have in common.
struct World<'a> {
    machine: Machine,
    share: &'a Path,
    nvdimm: &'a Path,
    copies: Option<Copies>,
    on: FileSystem,
}

impl World<'_> {
    /// Runs one life of a machine, and returns what all its crashes except the last have left.
    fn live(&self, number: u64, life: &Life) -> anyhow::Result<Vec<Found>> {
        let words = ["stores", self.on.name(), &number.to_string(), life.way.name(), &life.seed.to_string()];
        thread::scope(|scope| {
            let guest = scope.spawn(|| self.machine.run(&words));
            let crashed = self.crash(number, life, || guest.is_finished());
            self.machine.kill();
            match guest.join().map_err(|_| anyhow::anyhow!("a thread panicked"))? {
                Ok(outcome) => bail!("the guest has ended by itself: {}", String::from_utf8_lossy(&outcome.stderr)),
                Err(error) => crashed.with_context(|| format!("the machine: {error}")),
            }
        })
    }

    fn crash(&self, number: u64, life: &Life, is_over: impl Fn() -> bool) -> anyhow::Result<Vec<Found>> {
        let notes = Notes { share: self.share, round: number };
        let mut found = Vec::new();
        let mut acknowledged = 0;
        for (at, &wait) in life.waits.iter().enumerate() {
            let deadline = Instant::now() + BOOT_MAX;
            while notes.acknowledged()? == acknowledged {
                ensure!(!is_over() && Instant::now() < deadline, "no more stores are acknowledged than {acknowledged}");
                thread::sleep(BETWEEN_LOOKS);
            }
            thread::sleep(wait);
            let (Some(copies), false) = (&self.copies, at + 1 == life.waits.len()) else { break };
            let copy;
            (copy, acknowledged) =
                self.machine.while_stopped(|| Ok((copies.take(self.nvdimm)?, notes.acknowledged()?)))?;
            found.push(copies.look(copy.path(), |dir| verify(dir, number, Round { seed: life.seed }, acknowledged))?);
        }
        Ok(found)
    }

    /// What the machine after this one has found.
    fn found(&self, number: u64) -> anyhow::Result<Found> {
        let notes = Notes { share: self.share, round: number };
        Found::parse(&fs::read_to_string(notes.found()).context("nobody has looked")?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_its_lives_and_each_way_has_its_crashes() {
        let words = |seed| lives(200, 20, seed).iter().map(|life| format!("{life:?}")).collect::<Vec<_>>();
        assert_eq!(words(7), words(7));
        assert_ne!(words(7), words(8));
        for (crashes, per_life) in [(200, 20), (3, 20), (8, 20), (8, 1)] {
            let lives = lives(crashes, per_life, 1);
            let of = |way| lives.iter().filter(|life| life.way == way).map(|life| life.waits.len() as u64).sum::<u64>();
            assert_eq!(of(Way::MapSync) + of(Way::Requests), crashes);
            assert!(Way::ALL.into_iter().all(|way| of(way) > 0), "{crashes} {per_life}");
        }
    }
}
