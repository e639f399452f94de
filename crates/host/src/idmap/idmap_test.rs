use proptest::prelude::*;

use super::*;

fn map(rules: &[&str]) -> Result<UidMap, String> {
    let rules: Vec<Rule> = rules.iter().map(|text| text.parse().unwrap()).collect();
    UidMap::new(&rules).map_err(|error| error.to_string())
}

#[test]
fn everything_is_squashed_and_one_owner_shown_as_another() {
    let map = map(&["squash-guest:0:1001:4294967295", "host:1001:1000:1"]).unwrap();
    for guest in [0, 5, 1000, u32::MAX - 1] {
        assert_eq!(map.to_host(GuestUid(guest)), Ok(HostUid(1001)));
    }
    assert_eq!(map.to_host(GuestUid(u32::MAX)), Ok(HostUid(u32::MAX)), "no id, but a mark");
    assert_eq!(map.to_guest(HostUid(1001)), GuestUid(1000));
    assert_eq!(map.to_guest(HostUid(0)), GuestUid(0));
}

#[test]
fn a_forbidden_id_is_refused_and_its_neighbours_are_not() {
    let map = map(&["forbid-guest:10:2", "map:0:100:10"]).unwrap();
    assert_eq!(map.to_host(GuestUid(9)), Ok(HostUid(109)));
    assert_eq!(map.to_host(GuestUid(10)), Err(Errno::PERM));
    assert_eq!(map.to_host(GuestUid(11)), Err(Errno::PERM));
    assert_eq!(map.to_host(GuestUid(12)), Ok(HostUid(12)));
    assert_eq!(map.to_guest(HostUid(109)), GuestUid(9));
    assert_eq!(map.to_guest(HostUid(10)), GuestUid(10));
}

#[test]
fn the_preset_squashes_both_ways_and_no_rule_is_the_identity() {
    let map = UidMap::new(&Rule::squash_all(1000, 0)).unwrap();
    assert_eq!(map.to_host(GuestUid(33)), Ok(HostUid(1000)));
    assert_eq!(map.to_guest(HostUid(1000)), GuestUid(0));
    assert!(!map.is_identity());
    assert!(UidMap::new(&[]).unwrap().is_identity());
    assert!(OwnerMap::default().is_identity());
}

#[test]
fn rules_that_contradict_are_named_with_their_numbers() {
    assert_eq!(
        map(&["guest:5:50:10", "squash-guest:0:1:6"]).unwrap_err(),
        "rules 'squash-guest:0:1:6' and 'guest:5:50:10' both translate id 5 from guest to host"
    );
    assert!(map(&["guest:5:50:10", "host:5:50:10"]).is_ok(), "the directions are independent");
    assert!(map(&["guest:5:50:0", "guest:5:60:1"]).is_ok(), "an empty range names nothing");
    assert_eq!(
        map(&["map:4294967290:0:6"]).unwrap_err(),
        "rule 'map:4294967290:0:6' extends past the last id: 4294967290 plus 6 exceeds 4294967295"
    );
    assert!(map(&["guest:0:4294967290:6"]).is_err(), "the target would pass it");
    assert!(map(&["squash-host:0:4294967295:1"]).is_err(), "the target is no id");
}

#[test]
fn texts_that_are_no_rules_say_why() {
    let error = |text: &str| text.parse::<Rule>().unwrap_err().to_string();
    assert_eq!(error("map:0:1"), "rule 'map:0:1' has 2 numbers instead of 3");
    assert_eq!(error("forbid-guest:0:1:2"), "rule 'forbid-guest:0:1:2' has 3 numbers instead of 2");
    assert_eq!(error("map:0:-1:3"), "'-1' in rule 'map:0:-1:3' is not a number from 0 to 4294967295");
    assert_eq!(
        error("map:0:4294967296:3"),
        "'4294967296' in rule 'map:0:4294967296:3' is not a number from 0 to 4294967295"
    );
    assert!(error("0:1:2").contains("has an unknown kind"));
    assert!(error("map").contains("has no numbers"));
    assert!(error("").contains("has no numbers"));
    assert_eq!("MAP/1/2/3".parse(), Ok(Rule::Map { guest: 1, host: 2, count: 3 }));
}

fn any_rule() -> impl Strategy<Value = Rule> {
    (0u32..6, 0u32..60, 0u32..60, 0u32..12).prop_map(|(kind, a, b, count)| match kind {
        0 => Rule::Guest { guest: a, host: b, count },
        1 => Rule::Host { host: a, guest: b, count },
        2 => Rule::SquashGuest { guest: a, host: b, count },
        3 => Rule::SquashHost { host: a, guest: b, count },
        4 => Rule::ForbidGuest { guest: a, count },
        _ => Rule::Map { guest: a, host: b, count },
    })
}

/// The plain model: for each id, every rule with it as a source, and its translation by that rule.
fn model(rules: &[Rule], id: u32, from_guest: bool) -> Vec<Option<u32>> {
    let within = |first: u32, count: u32| id >= first && id - first < count;
    rules
        .iter()
        .filter_map(|rule| match *rule {
            Rule::Guest { guest, host, count } | Rule::Map { guest, host, count }
                if from_guest && within(guest, count) =>
            {
                Some(Some(host + (id - guest)))
            }
            Rule::Host { host, guest, count } | Rule::Map { guest, host, count }
                if !from_guest && within(host, count) =>
            {
                Some(Some(guest + (id - host)))
            }
            Rule::SquashGuest { guest, host, count } if from_guest && within(guest, count) => Some(Some(host)),
            Rule::SquashHost { host, guest, count } if !from_guest && within(host, count) => Some(Some(guest)),
            Rule::ForbidGuest { guest, count } if from_guest && within(guest, count) => Some(None),
            _ => None,
        })
        .collect()
}

proptest! {
    #[test]
    fn a_map_does_what_its_rules_say_and_exists_where_they_do_not_overlap(
        rules in proptest::collection::vec(any_rule(), 0..6),
    ) {
        let overlap = (0..80).any(|id| model(&rules, id, true).len() > 1 || model(&rules, id, false).len() > 1);
        match UidMap::new(&rules) {
            Err(error) => prop_assert!(overlap, "{}", error),
            Ok(map) => {
                prop_assert!(!overlap);
                for id in 0..80 {
                    let expected = model(&rules, id, true).pop().unwrap_or(Some(id));
                    prop_assert_eq!(map.to_host(GuestUid(id)), expected.map(HostUid).ok_or(Errno::PERM));
                    let expected = model(&rules, id, false).pop().unwrap_or(Some(id));
                    prop_assert_eq!(Some(map.to_guest(HostUid(id)).0), expected);
                }
            }
        }
    }

    #[test]
    fn a_rule_reads_back_as_it_was_written(rule in any_rule()) {
        prop_assert_eq!(rule.to_string().parse(), Ok(rule));
    }
}
