use super::*;

const FILE: NodeId = NodeId(7);
const READ: OpenMode = OpenMode(libc::O_RDONLY as u32);
const WRITE: OpenMode = OpenMode(libc::O_WRONLY as u32);
const EXECUTE: OpenMode = OpenMode(libc::O_RDONLY as u32 | FMODE_EXEC);
const PLAIN: u32 = libc::S_IFREG | 0o755;
const SET_UID: u32 = libc::S_IFREG | 0o4755;
/// Tasks.
const ONE: u32 = 1;
const OTHER: u32 = 2;

/// The kernel has looked the file up, with this mode.
fn known(mode: u32) -> Attributes {
    let mut attributes = Attributes::default();
    attributes.note_reply(FILE, mode, true);
    attributes
}

#[test]
fn attributes_with_set_id_bits_expire_at_once_and_others_do_not() {
    let mut attributes = known(PLAIN);
    for (mode, expires_at_once) in [(PLAIN, false), (SET_UID, true), (libc::S_IFREG | 0o2755, true), (PLAIN, false)] {
        assert_eq!(
            attributes.note_reply(FILE, mode, false),
            ReplyRules { expires_at_once, hides_set_id: false },
            "{mode:o}"
        );
    }
}

#[test]
fn a_program_without_set_id_bits_is_opened_for_anything() {
    let mut attributes = known(PLAIN);
    for mode in [WRITE, EXECUTE, READ, WRITE, EXECUTE] {
        assert_eq!(attributes.open(FILE, mode, ONE), OpenVerdict::Open);
    }
}

#[test]
fn a_set_id_program_is_executed_or_written_and_always_read() {
    let mut attributes = known(SET_UID);
    assert_eq!(attributes.open(FILE, EXECUTE, ONE), OpenVerdict::Open);
    assert_eq!(attributes.open(FILE, WRITE, OTHER), OpenVerdict::Busy);
    assert_eq!(attributes.open(FILE, READ, OTHER), OpenVerdict::Open);
    attributes.close(FILE, READ);
    attributes.close(FILE, EXECUTE);
    assert_eq!(attributes.open(FILE, WRITE, OTHER), OpenVerdict::Open);
    assert_eq!(attributes.open(FILE, EXECUTE, ONE), OpenVerdict::Busy);
}

#[test]
fn after_a_writer_each_task_asks_again_until_one_of_them_has() {
    let mut attributes = known(SET_UID);
    assert_eq!(attributes.open(FILE, WRITE, OTHER), OpenVerdict::Open);
    attributes.close(FILE, WRITE);
    assert_eq!(attributes.open(FILE, EXECUTE, ONE), OpenVerdict::Stale);
    // What the other task asked may be older than the write.
    assert_eq!(attributes.open(FILE, EXECUTE, OTHER), OpenVerdict::Stale);
    assert_eq!(attributes.open(FILE, EXECUTE, ONE), OpenVerdict::Open);
    assert_eq!(attributes.open(FILE, EXECUTE, OTHER), OpenVerdict::Open);
    assert_eq!(attributes.open(FILE, EXECUTE, 3), OpenVerdict::Open);
}

#[test]
fn a_writer_between_the_two_opens_makes_the_kernel_ask_once_more() {
    let mut attributes = known(SET_UID);
    for _ in 0..3 {
        assert_eq!(attributes.open(FILE, WRITE, OTHER), OpenVerdict::Open);
        attributes.close(FILE, WRITE);
        assert_eq!(attributes.open(FILE, EXECUTE, ONE), OpenVerdict::Stale);
    }
    assert_eq!(attributes.open(FILE, EXECUTE, ONE), OpenVerdict::Open);
}

#[test]
fn bits_that_come_while_a_file_is_open_for_writing_make_it_suspect() {
    let mut attributes = known(PLAIN);
    assert_eq!(attributes.open(FILE, WRITE, OTHER), OpenVerdict::Open);
    assert!(!attributes.note_reply(FILE, SET_UID, false).hides_set_id);
    attributes.close(FILE, WRITE);
    assert_eq!(attributes.open(FILE, EXECUTE, ONE), OpenVerdict::Stale);
}

#[test]
fn bits_that_come_while_a_file_is_written_and_about_to_be_executed_are_not_told() {
    let mut attributes = known(PLAIN);
    assert_eq!(attributes.open(FILE, EXECUTE, ONE), OpenVerdict::Open);
    assert_eq!(attributes.open(FILE, WRITE, OTHER), OpenVerdict::Open);
    let hidden = ReplyRules { expires_at_once: true, hides_set_id: true };
    assert_eq!(attributes.note_reply(FILE, SET_UID, false), hidden);
    // A CREATE that has found the file, as another name of it, is a writer too.
    attributes.close(FILE, WRITE);
    attributes.create(FILE, WRITE);
    assert_eq!(attributes.note_reply(FILE, SET_UID, true), hidden);
    attributes.close(FILE, WRITE);
    assert!(!attributes.note_reply(FILE, SET_UID, false).hides_set_id);
}

#[test]
fn what_was_told_counts_until_the_last_reference_is_dropped() {
    let mut attributes = known(PLAIN);
    attributes.note_reply(FILE, SET_UID, true);
    attributes.forget(FILE, 1);
    attributes.open(FILE, WRITE, OTHER);
    assert_eq!(attributes.open(FILE, EXECUTE, ONE), OpenVerdict::Busy);
    attributes.close(FILE, WRITE);
    attributes.forget(FILE, 1);
    assert!(attributes.files.is_empty());
}

#[test]
fn a_file_that_may_be_mapped_for_writing_is_asked_for_each_time() {
    let mut attributes = known(PLAIN);
    assert!(attributes.set_mappable(FILE) && !attributes.set_mappable(FILE));
    assert!(attributes.note_reply(FILE, PLAIN, false).expires_at_once);
    attributes.forget(FILE, 1);
    assert!(!attributes.note_reply(FILE, PLAIN, true).expires_at_once);
}

#[test]
fn tasks_that_wait_for_another_try_have_a_bound() {
    let mut attributes = known(SET_UID);
    attributes.open(FILE, WRITE, OTHER);
    attributes.close(FILE, WRITE);
    for pid in 0..1000 {
        assert_eq!(attributes.open(FILE, EXECUTE, pid), OpenVerdict::Stale);
    }
    assert!(attributes.files[&FILE].retries.len() <= RETRIES_MAX);
}

#[test]
fn a_task_of_another_pid_namespace_is_never_taken_for_the_one_that_asked_again() {
    let mut attributes = known(SET_UID);
    attributes.open(FILE, WRITE, OTHER);
    attributes.close(FILE, WRITE);
    for _ in 0..3 {
        assert_eq!(attributes.open(FILE, EXECUTE, UNKNOWN_PID), OpenVerdict::Stale);
    }
    assert_eq!(attributes.open(FILE, EXECUTE, ONE), OpenVerdict::Stale);
    assert_eq!(attributes.open(FILE, EXECUTE, ONE), OpenVerdict::Open);
    attributes.close(FILE, EXECUTE);
    assert_eq!(attributes.open(FILE, EXECUTE, UNKNOWN_PID), OpenVerdict::Open, "the kernel has the mode now");
}
