//! The protocol of the version table, searched exhaustively: two daemons with a guest each share one file. Guests
//! change it by requests or by stores through a mapping, fetch it and use what they have fetched; a daemon dies at any
//! point. A guest keeps what it has cached over its own changes, if the replies show that nobody else has changed
//! anything in between. Every order of their steps is tried. Each rule of the protocol has a mutant without it, which
//! the search must catch.
//!
//! `transom-versions` has models of its code under `--features loom`; this is a model of the protocol, with the parts
//! that are not in that crate: requests, replies, members' counts and their deaths. [`state`] has the state and the
//! steps.

mod state;

use std::collections::HashSet;

use state::{Budget, Mutant, State};

/// What one search found.
#[derive(Default)]
struct Found {
    states: usize,
    valid_uses: usize,
    refused_uses: usize,
    is_stale: bool,
}

/// Tries every order of steps, until a guest uses something stale.
fn search(budget: Budget, mutant: Option<Mutant>) -> Found {
    let mut found = Found::default();
    let (mut seen, mut open) = (HashSet::new(), vec![State::new(budget)]);
    while let Some(state) = open.pop() {
        if !seen.insert(state.clone()) {
            continue;
        }
        found.states += 1;
        state.each_next(mutant, &mut |next, used| {
            match used {
                Some(state::Used::Stale) => found.is_stale = true,
                Some(state::Used::Right) => found.valid_uses += 1,
                Some(state::Used::Refused) => found.refused_uses += 1,
                None => {}
            }
            open.push(next);
        });
        if found.is_stale {
            break;
        }
    }
    found
}

/// Enough for each rule, and few enough that a search ends within seconds. The smallest come first, since a mutant is
/// searched until it is caught.
const BUDGETS: [(&str, Budget); 6] = [
    ("both guests send changes", Budget { changes: [2, 1], opens: [0, 0], stores: 0, deaths: 0 }),
    ("a daemon dies after a change", Budget { changes: [1, 1], opens: [0, 0], stores: 0, deaths: 1 }),
    ("one guest sends a change, the other stores", Budget { changes: [0, 1], opens: [1, 0], stores: 1, deaths: 0 }),
    ("the guest that reads sends changes", Budget { changes: [1, 2], opens: [0, 0], stores: 0, deaths: 0 }),
    ("both guests store through mappings", Budget { changes: [1, 0], opens: [1, 1], stores: 1, deaths: 0 }),
    ("a daemon dies", Budget { changes: [1, 0], opens: [1, 1], stores: 1, deaths: 1 }),
];

#[test]
fn nobody_uses_anything_stale_after_a_completed_change() {
    for (what, budget) in BUDGETS {
        let found = search(budget, None);
        println!(
            "{what}: {} states, {} uses of what was cached, {} times it was invalid",
            found.states, found.valid_uses, found.refused_uses
        );
        assert!(!found.is_stale, "{what}: a stale use");
        assert!(found.valid_uses > 0 && found.refused_uses > 0, "{what}: the search is about nothing");
    }
}

#[test]
fn without_any_of_the_rules_something_stale_is_used() {
    for mutant in Mutant::ALL {
        let caught = BUDGETS.iter().find(|(_, budget)| search(*budget, Some(*mutant)).is_stale);
        let (what, _) = caught.unwrap_or_else(|| panic!("{mutant:?} is never caught"));
        println!("{mutant:?}: caught where {what}");
    }
}
