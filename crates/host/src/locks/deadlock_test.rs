//! Random programs of owners that lock, wait and unlock, one request after the other, against a model with a table of
//! each byte's locks: who gets a lock at once, who waits, who is refused (EDEADLK), and who is reported as
//! conflicting.

use std::{
    collections::BTreeSet,
    path::PathBuf,
    sync::mpsc::{self, Receiver, Sender},
    thread,
    time::Duration,
};

use proptest::prelude::*;

use super::*;

const OWNERS: usize = 4;
const FILES: usize = 2;
const BYTES: usize = 6;
/// Far longer than any request takes that will be answered.
const HANG: Duration = Duration::from_secs(120);

#[derive(Debug, Clone, Copy)]
struct Act {
    owner: usize,
    file: usize,
    start: usize,
    end: usize,
    /// `None` unlocks.
    kind: Option<LockKind>,
    waits: bool,
}

fn act() -> impl Strategy<Value = Act> {
    let kind = prop_oneof![
        2 => Just(None),
        2 => Just(Some(LockKind::Shared)),
        3 => Just(Some(LockKind::Exclusive)),
    ];
    (0..OWNERS, 0..FILES, 0..BYTES, 0..BYTES, kind, prop::bool::weighted(0.8)).prop_map(
        |(owner, file, one, other, kind, waits)| Act {
            owner,
            file,
            start: one.min(other),
            end: one.max(other),
            kind,
            waits,
        },
    )
}

/// Indexed by file, byte and owner.
#[derive(Default)]
struct Model {
    held: [[[Option<LockKind>; OWNERS]; BYTES]; FILES],
    waiting: [Option<Act>; OWNERS],
}

impl Model {
    /// Returns the owners with a conflicting lock.
    fn in_the_way(&self, act: &Act) -> BTreeSet<usize> {
        let mut owners = BTreeSet::new();
        for byte in &self.held[act.file][act.start..=act.end] {
            let excludes = |held| held == LockKind::Exclusive || act.kind == Some(LockKind::Exclusive);
            let others = (0..OWNERS).filter(|&owner| owner != act.owner);
            owners.extend(others.filter(|&owner| byte[owner].is_some_and(excludes)));
        }
        owners
    }

    /// Returns whether the owner of `act` would wait for itself.
    fn is_circle(&self, act: &Act) -> bool {
        let mut reached = self.in_the_way(act);
        for _ in 0..OWNERS {
            let waiting = reached.iter().filter_map(|&owner| self.waiting[owner]);
            let more: Vec<_> = waiting.flat_map(|act| self.in_the_way(&act)).collect();
            reached.extend(more);
        }
        reached.contains(&act.owner)
    }

    fn apply(&mut self, act: &Act) {
        self.held[act.file][act.start..=act.end].iter_mut().for_each(|byte| byte[act.owner] = act.kind);
    }
}

fn wanted(act: &Act) -> Wanted {
    Wanted {
        inode: NodeId(1 + act.file as u64),
        owner: LockOwner((1 + act.owner as u64).into()),
        pid: 1 + act.owner as u32,
        range: FileRange::new(act.start as u64, act.end as u64).unwrap(),
        kind: act.kind.unwrap_or(LockKind::Exclusive),
    }
}

/// The locks under test, with a thread for each owner.
struct Bench {
    locks: Locks,
    users: [LockingFile; FILES],
    files: [PathBuf; FILES],
}

impl Bench {
    fn open(&self, act: &Act) -> Result<OwnedFd, Errno> {
        Ok(std::fs::File::options().read(true).write(true).open(&self.files[act.file]).unwrap().into())
    }

    fn serve(&self, act: &Act) -> Result<(), Errno> {
        let (wanted, users, open) = (wanted(act), &self.users[act.file], || self.open(act));
        match act.kind {
            None => self.locks.unset(wanted.inode, wanted.owner, wanted.range),
            Some(_) if act.waits => self.locks.set_waiting(Unique(act.owner as u64), &wanted, users, open),
            Some(_) => self.locks.set(&wanted, users, open),
        }
    }

    /// Checks that GETLK on each byte names an owner that holds it.
    fn check(&self, model: &Model) -> Result<(), TestCaseError> {
        for (file, byte) in (0..FILES).flat_map(|file| (0..BYTES).map(move |byte| (file, byte))) {
            let act = Act { owner: OWNERS, file, start: byte, end: byte, kind: None, waits: false };
            let found = self.locks.get(&wanted(&act), self.open(&act).unwrap()).unwrap();
            let holds = |owner: usize, kind| model.held[file][byte][owner] == Some(kind);
            match found {
                Some(found) => prop_assert!(holds(found.pid as usize - 1, found.kind), "{}: {:?}", byte, found),
                None => prop_assert_eq!(model.held[file][byte], [None; OWNERS]),
            }
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
    #[test]
    fn owners_wait_and_are_refused_as_the_model_says(acts in prop::collection::vec(act(), 1..60)) {
        let dir = tempfile::tempdir().unwrap();
        let files = ["one", "two"].map(|name| dir.path().join(name));
        files.iter().for_each(|file| std::fs::write(file, "").unwrap());
        let locks = Locks::new(Limits::default()).unwrap();
        let bench = Bench { locks, users: Default::default(), files };
        thread::scope(|scope| {
            let (answer, answers) = mpsc::channel();
            let owners: Vec<Sender<Act>> = (0..OWNERS)
                .map(|_| {
                    let ((sender, acts), answer, bench) = (mpsc::channel::<Act>(), answer.clone(), &bench);
                    scope.spawn(move || acts.iter().for_each(|act| {
                        let _ = answer.send((act.owner, bench.serve(&act)));
                    }));
                    sender
                })
                .collect();
            let outcome = run(&bench, &acts, &owners, &answers);
            // Wakes everybody who still waits or was about to.
            drop(owners);
            drop(answer);
            while answers.recv_timeout(Duration::from_millis(1)) != Err(mpsc::RecvTimeoutError::Disconnected) {
                bench.locks.interrupt_all();
            }
            outcome
        })?;
    }
}

fn run(
    bench: &Bench,
    acts: &[Act],
    owners: &[Sender<Act>],
    answers: &Receiver<(usize, Result<(), Errno>)>,
) -> Result<(), TestCaseError> {
    let (mut model, mut early) = (Model::default(), Vec::new());
    for act in acts {
        if model.waiting[act.owner].is_some() {
            continue;
        }
        // 1. The request itself.
        let (is_free, is_circle) = (model.in_the_way(act).is_empty(), model.is_circle(act));
        owners[act.owner].send(*act).unwrap();
        if act.kind.is_none() || is_free || is_circle || !act.waits {
            let expected = match act.kind {
                Some(_) if !is_free && act.waits => Err(Errno::DEADLK),
                Some(_) if !is_free => Err(Errno::AGAIN),
                _ => Ok(()),
            };
            // What it releases may be granted to others before its own reply.
            let outcome = loop {
                match answers.recv_timeout(HANG).unwrap() {
                    (owner, outcome) if owner == act.owner => break outcome,
                    other => early.push(other),
                }
            };
            prop_assert_eq!(outcome, expected, "{:?}", act);
            if expected == Ok(()) {
                model.apply(act);
            }
        } else {
            model.waiting[act.owner] = Some(*act);
            let count = model.waiting.iter().flatten().count();
            while bench.locks.waiting() != count {
                prop_assert!(answers.try_recv().is_err(), "answered, and should wait: {:?}", act);
                thread::yield_now();
            }
        }
        // 2. Requests that need not wait any more, in whatever order the kernel chooses. One that is granted a shared
        //    lock in place of an exclusive one lets others in, and these may be answered first.
        loop {
            let is_free = |act: &Act| model.in_the_way(act).is_empty();
            let given = early.iter().position(|(owner, _)| model.waiting[*owner].as_ref().is_some_and(is_free));
            if let Some(at) = given {
                let (owner, outcome) = early.swap_remove(at);
                let act = model.waiting[owner].take().unwrap();
                prop_assert_eq!(outcome, Ok(()), "{:?}", act);
                model.apply(&act);
            } else if model.waiting.iter().flatten().any(is_free) {
                early.push(answers.recv_timeout(HANG).unwrap());
            } else {
                break;
            }
        }
        prop_assert!(early.is_empty() && answers.try_recv().is_err(), "given against the rules");
        bench.check(&model)?;
    }
    Ok(())
}
