//! Who stamps the host's own changes, among members of this process and of others.

use super::{
    group_test::{Peer, directories, eventually, join},
    *,
};

fn follows_host(group: &Group) -> bool {
    group.reader().stamps_host_changes()
}

#[test]
fn one_member_at_a_time_stamps_changes_of_the_host_and_another_takes_over_without_a_loss() {
    let (place, share) = directories();
    let [one, two, three] = [(); 3].map(|()| join(place.path(), share.path()).unwrap());
    let fetched = three.now();
    assert!(!follows_host(&three) && !one.watches_host());
    one.offer_host_watch(true);
    assert!(one.watches_host() && follows_host(&three));
    assert!(!three.is_valid(7, fetched), "it was fetched when nobody looked");
    two.offer_host_watch(true);
    let fetched = three.now();
    assert!(one.watches_host() && !two.watches_host());
    drop(one);
    eventually("another takes over", || two.watches_host());
    assert!(follows_host(&three) && three.is_valid(7, fetched), "it was sent what the first one has not read");

    // One that has not kept it cannot know what it is.
    let four = join(place.path(), share.path()).unwrap();
    four.offer_host_watch(false);
    drop(two);
    eventually("another takes over", || four.watches_host());
    assert!(!three.is_valid(7, fetched));
}

#[test]
fn the_flag_is_cleared_and_everything_cached_invalid_when_nobody_looks_any_more() {
    let (place, share) = directories();
    let [one, two] = [(); 2].map(|()| join(place.path(), share.path()).unwrap());
    one.offer_host_watch(true);
    let fetched = two.now();
    one.withdraw_host_watch();
    assert!(!one.watches_host() && !follows_host(&two) && !two.is_valid(7, fetched));

    one.offer_host_watch(true);
    let fetched = two.now();
    drop(one);
    eventually("the flag is cleared", || !follows_host(&two));
    assert!(!two.is_valid(7, fetched));
}

#[test]
fn when_the_member_that_stamps_changes_of_the_host_is_killed_another_takes_over() {
    let (place, share) = directories();
    let [one, two] = [(); 2].map(|()| join(place.path(), share.path()).unwrap());
    let peer = Peer::start(place.path(), share.path(), "watch");
    one.offer_host_watch(true);
    assert!(follows_host(&two) && !one.watches_host());
    let fetched = two.now();
    drop(peer);
    eventually("another takes over", || one.watches_host());
    assert!(follows_host(&two));
    eventually("what the dead one may have missed is invalid", || !two.is_valid(7, fetched));
}

#[test]
fn the_flag_of_a_group_whose_last_member_was_killed_is_cleared_by_the_next() {
    let (place, share) = directories();
    drop(Peer::start(place.path(), share.path(), "watch"));
    assert!(!follows_host(&join(place.path(), share.path()).unwrap()));
}

#[test]
fn members_know_each_other_by_pid_only_in_one_pid_namespace() {
    let (place, share) = directories();
    let [one, two, three] = [(); 3].map(|()| join(place.path(), share.path()).unwrap());
    let pids = |group: &Group| group.pids().collect::<Vec<_>>();
    assert_eq!(pids(&one), Vec::<u32>::new());
    one.set_pid_namespace(5);
    two.set_pid_namespace(5);
    three.set_pid_namespace(6);
    let own = std::process::id();
    assert_eq!((pids(&one), pids(&three)), (vec![own; 2], vec![own]));
}
