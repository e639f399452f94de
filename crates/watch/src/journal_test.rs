use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;
use crate::EntryName;

/// A step of two processes, a kernel's queue and its reader.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// We announce a change of a name.
    Announce(u8),
    /// One of our announced changes is made, with or without success; which one, modulo their number.
    Call(usize, bool),
    /// One of our changes whose call has returned ends.
    End(usize),
    /// Another process changes a name.
    Foreign(u8),
    BeginReading,
    /// Some messages are read.
    Read(usize),
    /// All messages are read.
    Drain,
    /// What has been read is attributed.
    Attribute,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..2_u8).prop_map(Step::Announce),
        3 => (0..8_usize, prop::bool::weighted(0.8)).prop_map(|(at, succeeds)| Step::Call(at, succeeds)),
        3 => (0..8_usize).prop_map(Step::End),
        2 => (0..2_u8).prop_map(Step::Foreign),
        2 => Just(Step::BeginReading),
        1 => (1..4_usize).prop_map(Step::Read),
        2 => Just(Step::Drain),
        2 => Just(Step::Attribute),
    ]
}

struct Ours<'a> {
    name: u8,
    progress: InProgress<'a>,
    outcome: Option<ChangeOutcome>,
}

/// Performs `steps`, and passes each message's true author (whether it is ours) and the journal's to `check`.
fn run(journal: &Journal, steps: &[Step], mut check: impl FnMut(bool, Author)) {
    let mut ours: Vec<Ours<'_>> = Vec::new();
    let mut queue: VecDeque<(u8, bool)> = VecDeque::new();
    let (mut reading, mut was_empty, mut read): (_, _, Vec<(u8, bool)>) = (None, false, Vec::new());
    for step in steps {
        match *step {
            Step::Announce(name) if ours.len() < 8 => {
                let progress = journal.announce(Announcement::Appears(1, &[name]));
                ours.push(Ours { name, progress, outcome: None });
            }
            Step::Call(at, succeeds) => {
                let mut waiting: Vec<_> = ours.iter_mut().filter(|our| our.outcome.is_none()).collect();
                let at = at % waiting.len().max(1);
                let Some(our) = waiting.get_mut(at) else { continue };
                our.outcome = Some(if succeeds { ChangeOutcome::Done } else { ChangeOutcome::Failed });
                queue.extend(succeeds.then_some((our.name, true)));
            }
            Step::End(at) => {
                let returned = ours.iter().enumerate().filter(|(_, our)| our.outcome.is_some()).map(|(at, _)| at);
                let returned: Vec<usize> = returned.collect();
                let Some(&at) = returned.get(at % returned.len().max(1)) else { continue };
                let Ours { progress, outcome, .. } = ours.remove(at);
                progress.end(outcome.unwrap());
            }
            Step::Foreign(name) => queue.push_back((name, false)),
            Step::BeginReading if reading.is_none() => {
                (reading, was_empty) = (Some(journal.begin()), false);
            }
            Step::Read(count) if reading.is_some() => {
                read.extend(queue.drain(..count.min(queue.len())));
                was_empty = false;
            }
            Step::Drain if reading.is_some() => {
                read.extend(queue.drain(..));
                was_empty = true;
            }
            Step::Attribute => {
                let Some(reading) = reading.take() else { continue };
                attribute(journal, reading, was_empty, &read)
                    .into_iter()
                    .zip(&read)
                    .for_each(|(author, (_, is_ours))| check(*is_ours, author));
                read.clear();
            }
            _ => {}
        }
    }
}

fn attribute(journal: &Journal, reading: Reading, is_drained: bool, read: &[(u8, bool)]) -> Vec<Author> {
    let names: Vec<[u8; 1]> = read.iter().map(|(name, _)| [*name]).collect();
    let mut changes: Vec<_> = names.iter().map(|name| change(ChangeKind::Created, name)).collect();
    journal.attribute(reading, is_drained, &mut changes);
    changes.iter().map(|change| change.author).collect()
}

fn change<'a>(kind: ChangeKind<'a>, name: &'a [u8]) -> Change<'a> {
    let place = EntryName { parent: Object::Held(1), name };
    Change { kind, is_dir: false, place: Some(place), object: None, author: Author::Unknown }
}

/// Returns the author of one message that is read alone, to the end of the queue.
fn author_of(journal: &Journal, kind: ChangeKind<'_>, name: &[u8]) -> Author {
    let reading = journal.begin();
    let mut changes = [change(kind, name)];
    journal.attribute(reading, true, &mut changes);
    changes[0].author
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4096, ..ProptestConfig::default() })]

    #[test]
    fn no_message_is_attributed_to_the_wrong_process(steps in prop::collection::vec(step(), 0..60)) {
        run(&Journal::default(), &steps, |is_ours, author| match author {
            Author::Own => assert!(is_ours, "another process's change is called our own"),
            Author::Other(_) => assert!(!is_ours, "our own change is called another process's"),
            Author::Unknown => {}
        });
    }
}

#[test]
fn a_change_that_ended_before_the_reading_is_our_own_and_the_next_is_not() {
    let journal = Journal::default();
    journal.announce(Announcement::Appears(1, b"a")).end(ChangeOutcome::Done);

    assert_eq!(author_of(&journal, ChangeKind::Created, b"a"), Author::Own);
    assert_eq!(author_of(&journal, ChangeKind::Created, b"a"), Author::Other(None));
    assert_eq!(author_of(&journal, ChangeKind::Deleted, b"a"), Author::Other(None));
}

#[test]
fn a_rename_is_our_own_if_both_its_names_are() {
    let journal = Journal::default();
    let to = EntryName { parent: Object::Held(1), name: b"b" };
    let (from, into) = (Announcement::Disappears(1, b"a"), Announcement::Appears(1, b"b"));
    journal.announce(from).end(ChangeOutcome::Done);
    journal.announce(into).end(ChangeOutcome::Done);
    assert_eq!(author_of(&journal, ChangeKind::Renamed { to }, b"a"), Author::Own);

    journal.announce(from).end(ChangeOutcome::Done);
    assert_eq!(author_of(&journal, ChangeKind::Renamed { to }, b"a"), Author::Unknown);
    assert_eq!(author_of(&journal, ChangeKind::Renamed { to }, b"a"), Author::Other(None));
}

#[test]
fn a_change_without_a_message_leaves_doubt_and_not_a_wrong_answer() {
    let journal = Journal::default();
    journal.announce(Announcement::Appears(1, b"a")).end(ChangeOutcome::Unsure);
    assert_eq!(author_of(&journal, ChangeKind::Created, b"a"), Author::Unknown);

    journal.announce(Announcement::Appears(1, b"a")).end(ChangeOutcome::Done);
    journal.doubt_all();
    assert_eq!(author_of(&journal, ChangeKind::Created, b"a"), Author::Unknown);
}

#[test]
fn contents_are_in_doubt_while_we_change_any() {
    let journal = Journal::default();
    assert_eq!(author_of(&journal, ChangeKind::Modified, b"a"), Author::Other(None));
    journal.announce(Announcement::Contents).end(ChangeOutcome::Done);
    assert_eq!(author_of(&journal, ChangeKind::Modified, b"a"), Author::Unknown);
    assert_eq!(author_of(&journal, ChangeKind::Modified, b"a"), Author::Other(None));
}

#[test]
fn a_full_journal_puts_everything_in_doubt_until_it_has_been_read_past() {
    let journal = Journal::default();
    let mut announced: Vec<_> =
        (0..=ENTRIES_MAX).map(|number| journal.announce(Announcement::Appears(2, &number.to_le_bytes()))).collect();
    assert_eq!(journal.lock().entries.len(), ENTRIES_MAX);
    assert_eq!(author_of(&journal, ChangeKind::Created, b"a"), Author::Unknown);

    announced.drain(..).for_each(|change| change.end(ChangeOutcome::Failed));
    assert_eq!(author_of(&journal, ChangeKind::Created, b"a"), Author::Unknown);
    assert_eq!(author_of(&journal, ChangeKind::Created, b"a"), Author::Other(None));
}
