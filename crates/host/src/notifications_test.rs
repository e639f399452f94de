use rustix::event::{PollFd, PollFlags, Timespec, poll};
use transom_wire::{NodeId, agent::Kind};

use super::*;

fn change(number: usize) -> Change {
    Change::of_name(Kind::Created, libc::DT_REG, NodeId::ROOT, number.to_string().as_bytes())
}

fn wanted() -> Notifications {
    let notifications = Notifications::new().unwrap();
    notifications.want(true);
    notifications
}

fn push(notifications: &Notifications, number: usize) {
    notifications.push(notifications.session().unwrap(), change(number));
}

/// Returns the names of the changes that wait, "lost" and "ended".
fn all(notifications: &Notifications) -> Vec<String> {
    let name = |taken: Taken| match taken.as_wire() {
        Notification::Change(change) => String::from_utf8(change.name.to_vec()).unwrap(),
        Notification::Lost => "lost".into(),
        Notification::Ended => "ended".into(),
    };
    std::iter::from_fn(|| notifications.take()).map(name).collect()
}

fn is_ready(notifications: &Notifications) -> bool {
    let mut fds = [PollFd::new(notifications, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() == 1
}

#[test]
fn changes_come_in_order_and_the_first_one_wakes() {
    let notifications = wanted();
    assert!(!is_ready(&notifications));
    (0..3).for_each(|number| push(&notifications, number));
    assert!(is_ready(&notifications));
    assert_eq!(all(&notifications), ["0", "1", "2"]);
}

#[test]
fn a_full_queue_becomes_one_loss_before_what_comes_after_it() {
    let notifications = wanted();
    (0..CHANGES_MAX).for_each(|number| push(&notifications, number));
    assert_eq!(notifications.take().map(|taken| matches!(taken.what, What::Change(_))), Some(true));
    (0..CHANGES_MAX + 2).for_each(|number| push(&notifications, number));
    let left = all(&notifications);
    assert_eq!((left.first().unwrap().as_str(), left.iter().filter(|name| *name == "lost").count()), ("lost", 1));
    assert!(left.len() <= CHANGES_MAX + 1);
    assert_eq!(left.last().unwrap(), &(CHANGES_MAX + 1).to_string());
}

#[test]
fn what_has_no_room_is_told_next_unless_a_loss_covers_it() {
    let notifications = wanted();
    (0..2).for_each(|number| push(&notifications, number));
    let first = notifications.take().unwrap();
    notifications.put_back(first);
    let first = notifications.take().unwrap();
    notifications.lose();
    notifications.put_back(first);
    let lost = notifications.take().unwrap();
    push(&notifications, 2);
    notifications.put_back(lost);
    assert_eq!(all(&notifications), ["lost", "2"]);
}

#[test]
fn a_session_is_told_nothing_of_the_one_before() {
    let notifications = wanted();
    push(&notifications, 0);
    let (of_old, old) = (notifications.take().unwrap(), notifications.session().unwrap());
    push(&notifications, 1);
    notifications.session_changed();
    notifications.push(old, change(2));
    notifications.put_back(of_old);
    assert_eq!(all(&notifications), [""; 0]);
}

#[test]
fn nothing_is_kept_for_a_guest_that_does_not_want_it() {
    let notifications = Notifications::new().unwrap();
    assert_eq!(notifications.session(), None);
    notifications.lose();
    notifications.want(true);
    push(&notifications, 0);
    notifications.want(false);
    assert!(notifications.take().is_none());
    notifications.want(true);
    assert_eq!(all(&notifications), [""; 0]);
}

#[test]
fn the_end_is_told_to_a_guest_that_wants_changes_later() {
    let notifications = Notifications::new().unwrap();
    notifications.end();
    assert!(notifications.take().is_none());
    notifications.want(true);
    assert!(is_ready(&notifications), "nothing else wakes whoever tells");
    assert_eq!(all(&notifications), ["ended"]);
}

#[test]
fn what_is_put_back_into_a_full_queue_is_lost_and_the_queue_stays_bounded() {
    let notifications = wanted();
    (0..CHANGES_MAX).for_each(|number| push(&notifications, number));
    for round in 0..3 {
        let taken = notifications.take().unwrap();
        while notifications.lock().changes.len() < CHANGES_MAX {
            push(&notifications, round);
        }
        notifications.put_back(taken);
        assert!(notifications.lock().changes.len() <= CHANGES_MAX);
    }
    (0..CHANGES_MAX * 2).for_each(|number| push(&notifications, number));
    let left = all(&notifications);
    assert_eq!(left.first().unwrap(), "lost");
    assert!(left.len() <= CHANGES_MAX + 1, "{}", left.len());
}

#[test]
fn the_end_is_told_once_to_each_session() {
    let notifications = wanted();
    push(&notifications, 0);
    notifications.end();
    assert_eq!(all(&notifications), ["lost", "ended"]);
    notifications.session_changed();
    assert_eq!(all(&notifications), ["ended"]);
}
