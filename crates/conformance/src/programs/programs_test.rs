use std::collections::BTreeSet;

use super::{
    operation::{Access, Caller, Creation, Name, OpenMode, Process},
    outcome::Outcome,
    *,
};
use crate::{client::Errno, compare::parse_allowed};

fn step(operation: Operation) -> Step {
    Step { caller: Caller::User, process: Process::First, operation }
}

fn chosen(seed: u64, number: u64) -> Vec<Step> {
    let random = TestRng::from_seed(RngAlgorithm::ChaCha, &key(seed, number));
    let mut runner = TestRunner::new_with_rng(Config::default(), random);
    let theme = THEMES[(number % THEMES.len() as u64) as usize];
    generate::programs(theme).new_tree(&mut runner).unwrap().current()
}

#[test]
fn a_seed_repeats_a_program_and_another_does_not() {
    assert_eq!(chosen(3, 8), chosen(3, 8));
    assert_ne!(chosen(3, 8), chosen(4, 8));
    assert_ne!(chosen(3, 8), chosen(3, 8 + THEMES.len() as u64));
}

#[test]
fn programs_make_every_call() {
    let steps = (0..400).flat_map(|number| chosen(1, number));
    let calls: BTreeSet<_> = steps.map(|step| step.operation.call()).collect();
    for call in
        ["open", "create", "dup", "setlk", "ofd-setlk", "flock", "fork", "exit", "ioctl-0x40046602", "execve", "race"]
    {
        assert!(calls.contains(call), "{call} is in none of {calls:?}");
    }
    assert!(calls.len() >= 45, "{calls:?}");
}

#[test]
fn errors_and_facts_differ_and_known_ones_are_marked() {
    let allowed = parse_allowed("fstat/* nlink it is known\n").unwrap();
    let status = step(Operation::Status { slot: 0 });
    let outcome = |nlink: u32, size: u32| Outcome::ok().with("nlink", nlink).with("size", size);
    let all = compare::differences(Some(&status), &outcome(1, 5), &outcome(2, 6), &allowed);
    let told: Vec<_> = all.iter().map(|d| (d.case.as_str(), d.what.as_str(), d.allowed.is_some())).collect();
    assert_eq!(told, [("fstat/user", "nlink", true), ("fstat/user", "size", false)]);
    let all = compare::differences(Some(&status), &Outcome::error(Errno::ACCESS), &outcome(1, 5), &allowed);
    assert_eq!((all.len(), all[0].what.as_str()), (1, "EACCES>ok"));
}

#[test]
fn what_is_at_the_end_is_told_without_its_path() {
    let outcome = |mode: &str| Outcome::ok().with("sticky/new:mode", mode);
    let all = compare::differences(None, &outcome("644"), &outcome("600"), &[]);
    assert_eq!(
        (all[0].case.as_str(), all[0].what.as_str(), all[0].found.as_str()),
        ("end", "mode", "sticky/new:mode 600")
    );
}

#[test]
fn the_shortest_program_has_the_steps_that_matter() {
    let random = TestRng::from_seed(RngAlgorithm::ChaCha, &key(5, 0));
    let mut runner = TestRunner::new_with_rng(Config::default(), random);
    let is_fork = |step: &Step| step.operation == Operation::Fork;
    let mut tree = loop {
        let tree = generate::programs(generate::Theme::Locks).new_tree(&mut runner).unwrap();
        if tree.current().iter().filter(|step| is_fork(step)).count() > 1 {
            break tree;
        }
    };
    let shows = |program: &[Step]| Ok(program.iter().filter(|step| is_fork(step)).count() > 1);
    let shortest = shrink::shrink(&mut tree, shows).unwrap();
    assert_eq!(shortest.iter().filter(|step| is_fork(step)).count(), shortest.len());
}

#[test]
fn steps_are_readable() {
    let mode = OpenMode { access: Access::ReadWrite, creates: Creation::IfMissing, truncates: true, appends: false };
    let open = Operation::Open { slot: 1, name: Name(9), mode, permissions: 0o640 };
    assert_eq!(step(open).to_string(), "user: fd1 = open(sticky/roots, O_RDWR|O_CREAT|O_TRUNC, 0640)");
    let child = Step { caller: Caller::Root, process: Process::Child, operation: Operation::Close { slot: 0 } };
    assert_eq!(child.to_string(), "root's child: close(fd0)");
}
