//! Differential programs with two callers: root and an ordinary user perform the same random operations in a bare
//! directory and on a client of the file system under test, and everything they see is compared.
//!
//! Each caller is a process ([`caller`]), so that credentials, descriptors, forks and locks are real. A program
//! ([`operation`]) runs one step at a time in two fresh trees ([`stage`], [`tree`], [`requests`]). Errors and results
//! are compared after each step, and the whole tree at the end ([`inspect`], [`compare`]). Races have no bare directory
//! to agree with: they are judged by what must never happen. A program that shows a difference is shortened while it
//! shows the same one ([`shrink`]). A seed repeats a run; program N of it can be repeated alone.

mod caller;
mod compare;
mod generate;
mod inspect;
mod operation;
mod outcome;
mod perform;
mod requests;
mod show;
mod shrink;
mod stage;
mod tree;

#[cfg(test)]
mod programs_test;

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
    rc::Rc,
};

use proptest::{
    strategy::{Strategy as _, ValueTree as _},
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};

use crate::compare::{Allowed, Difference};
use generate::THEMES;
use operation::{Operation, Step};
use requests::Requests;
use stage::{Directories, Stage, Timing};

pub use caller::serve;
pub use stage::clear_flags;

/// What to run, and where.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The bare directory, which decides.
    pub bare: PathBuf,
    /// Where the client shows the shared directory.
    pub client: PathBuf,
    /// The shared directory on the host, on the same file system as the bare one.
    pub share: PathBuf,
    /// How many programs.
    pub programs: u64,
    /// The number of the first one.
    pub first: u64,
    /// Repeats a run.
    pub seed: u64,
    /// Known differences.
    pub allowed: Vec<Allowed>,
    /// A command that ends in [`serve`], of the user whose number follows.
    pub caller: Vec<String>,
}

/// One kind of difference, with the shortest program that shows it.
#[derive(Clone, Debug)]
pub struct Finding {
    difference: Difference,
    steps: Vec<Step>,
    /// The program that it was seen in first.
    program: u64,
    /// How many programs had been run until then, this one included.
    after: u64,
    /// How many steps that program had.
    steps_before: usize,
    /// How often it was seen.
    count: u64,
    /// In how many of [`SHOWN_OF`] runs the shortest program shows it.
    shown: u32,
    seed: u64,
}

/// What a run came to.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Programs that were run.
    pub programs: u64,
    /// Steps of them.
    pub steps: u64,
    /// Allowed differences, by what differs.
    pub known: BTreeMap<(String, String), u64>,
    /// Other differences, one of each kind.
    pub findings: Vec<Finding>,
}

/// Errors: a program could not be run as far as its end.
pub fn run(settings: &Settings, tell: &mut dyn FnMut(&Finding)) -> anyhow::Result<Summary> {
    let mut run = Run::new(settings)?;
    for number in settings.first..settings.first + settings.programs {
        run.program(number, tell)?;
    }
    Ok(run.summary)
}

/// How often the shortest program is run again.
const SHOWN_OF: u32 = 3;

/// How often a race is run again before it counts as one that does not happen any more.
const RACES_AGAIN: u32 = 8;

struct Run<'s> {
    settings: &'s Settings,
    directories: [Directories; 2],
    timing: Timing,
    /// Trees that there were.
    trees: u64,
    summary: Summary,
}

impl<'s> Run<'s> {
    fn new(settings: &'s Settings) -> anyhow::Result<Self> {
        let directories = |dir: &Path, host: &Path| Directories {
            dir: dir.to_owned(),
            host: host.to_owned(),
            caller: settings.caller.clone(),
            requests: None,
        };
        let bare = directories(&settings.bare, &settings.bare);
        let requests = Requests::of(&settings.client)?.map(Rc::new);
        let client = Directories { requests, ..directories(&settings.client, &settings.share) };
        Ok(Self { settings, directories: [bare, client], timing: Timing::new(), trees: 0, summary: Summary::default() })
    }

    /// Chooses program `number`, runs it, and shrinks it if it shows something new.
    fn program(&mut self, number: u64, tell: &mut dyn FnMut(&Finding)) -> anyhow::Result<()> {
        let config = Config { failure_persistence: None, ..Config::default() };
        let random = TestRng::from_seed(RngAlgorithm::ChaCha, &key(self.settings.seed, number));
        let mut runner = TestRunner::new_with_rng(config, random);
        let theme = THEMES[(number % THEMES.len() as u64) as usize];
        let tree = generate::programs(theme).new_tree(&mut runner);
        let mut tree = tree.map_err(|reason| anyhow::anyhow!("choosing a program: {reason}"))?;
        let program = tree.current();
        self.summary.programs += 1;
        self.summary.steps += program.len() as u64;
        let Some(difference) = self.run(&program, None)? else { return Ok(()) };
        let mut shortest = difference.clone();
        let steps = shrink::shrink(&mut tree, |program| {
            let is_race = program.iter().any(|step| matches!(step.operation, Operation::Race { .. }));
            for _ in 0..if is_race { RACES_AGAIN } else { 1 } {
                if let Some(again) = self.run(program, Some(&difference))? {
                    shortest = again;
                    return Ok(true);
                }
            }
            Ok(false)
        })?;
        let mut shown = 0;
        for _ in 0..SHOWN_OF {
            shown += u32::from(self.run(&steps, Some(&difference))?.is_some());
        }
        let finding = Finding {
            difference: shortest,
            steps,
            program: number,
            after: self.summary.programs,
            steps_before: program.len(),
            count: 1,
            shown,
            seed: self.settings.seed,
        };
        tell(&finding);
        self.summary.findings.push(finding);
        Ok(())
    }

    /// Runs a program in both directories, and returns the first difference of the kind that is `wanted`, or of a kind
    /// that is neither allowed nor found yet.
    ///
    /// After other differences of errors the two may be in different states, and the rest is not run.
    fn run(&mut self, program: &[Step], wanted: Option<&Difference>) -> anyhow::Result<Option<Difference>> {
        self.trees += 1;
        let name = format!("p{}", self.trees);
        let mut bare = Stage::set(&self.directories[0], &name)?;
        let mut client = Stage::set(&self.directories[1], &name)?;
        for step in program {
            let expected = bare.perform(step, &mut self.timing)?;
            if step.operation.is_about_locks() {
                client.settle()?;
            }
            let found = client.perform(step, &mut self.timing)?;
            let differences = compare::differences(Some(step), &expected, &found, &self.settings.allowed);
            if let Some(difference) = self.judge(differences, wanted) {
                return Ok(Some(difference));
            }
            if expected.error != found.error {
                return Ok(None);
            }
        }
        let expected = bare.inspect()?;
        client.settle()?;
        let found = client.inspect()?;
        let differences = compare::differences(None, &expected, &found, &self.settings.allowed);
        Ok(self.judge(differences, wanted))
    }

    /// Returns the first difference that is wanted or new; counts the others, unless something is wanted.
    fn judge(&mut self, differences: Vec<Difference>, wanted: Option<&Difference>) -> Option<Difference> {
        if let Some(wanted) = wanted {
            return differences.into_iter().find(|difference| is_same_kind(difference, wanted));
        }
        for difference in differences {
            if difference.allowed.is_some() {
                *self.summary.known.entry((difference.case, difference.what)).or_default() += 1;
                continue;
            }
            let mut findings = self.summary.findings.iter_mut();
            match findings.find(|finding| is_same_kind(&finding.difference, &difference)) {
                Some(finding) => finding.count += 1,
                None => return Some(difference),
            }
        }
        None
    }
}

fn is_same_kind(one: &Difference, other: &Difference) -> bool {
    one.case == other.case && one.what == other.what
}

/// The key of a program's random numbers.
fn key(seed: u64, number: u64) -> [u8; 32] {
    let mut key = [0; 32];
    key[..8].copy_from_slice(&seed.to_le_bytes());
    key[8..16].copy_from_slice(&number.to_le_bytes());
    key
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Difference { case, what, expected, found, .. } = &self.difference;
        writeln!(f, "DIFFERENT {case} {what}")?;
        self.steps.iter().enumerate().try_for_each(|(index, step)| writeln!(f, "    {}. {step}", index + 1))?;
        writeln!(f, "    bare directory: {expected}")?;
        writeln!(f, "    client:         {found}")?;
        write!(
            f,
            "    after {} programs, {} steps before shrinking, seen again in {} of {SHOWN_OF} runs; repeat with \
             --seed {} --first {} --programs 1",
            self.after, self.steps_before, self.shown, self.seed, self.program
        )
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Finding { difference, count, .. } in &self.findings {
            writeln!(f, "{} {}: {count} times", difference.case, difference.what)?;
        }
        for ((case, what), count) in &self.known {
            writeln!(f, "allowed {case} {what}: {count} times")?;
        }
        let (programs, steps) = (self.programs, self.steps);
        write!(f, "{programs} programs of {steps} steps, {} kinds of differences", self.findings.len())
    }
}
