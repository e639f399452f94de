//! Where two outcomes of one step differ.

use super::{operation::Step, outcome::Outcome};
use crate::compare::{Allowed, Difference};

/// What the end of a program is called in place of a system call.
pub(super) const END: &str = "end";

/// What differs, allowed differences marked. An error that differs is told alone.
///
/// A step's case is `CALL/CALLER`, or `CALL-capability/CALLER` for an attribute that is a capability; the end's is
/// [`END`]. WHAT is `EXPECTED>FOUND` for errors, or the name of a fact without the path before it.
pub(super) fn differences(
    step: Option<&Step>,
    expected: &Outcome,
    found: &Outcome,
    allowed: &[Allowed],
) -> Vec<Difference> {
    let case = step.map_or_else(|| END.to_owned(), |step| format!("{}/{}", step.operation.case(), step.caller));
    let difference = |what: &str, expected: String, found: String| Difference {
        allowed: allowed.iter().find(|entry| entry.covers(&case, what)).map(|entry| entry.reason().to_owned()),
        case: case.clone(),
        what: what.to_owned(),
        expected,
        found,
    };
    if expected.error != found.error {
        let what = format!("{}>{}", expected.error, found.error).replace(' ', "-");
        return vec![difference(&what, expected.to_string(), found.to_string())];
    }
    let keys = expected.facts.keys().chain(found.facts.keys().filter(|key| !expected.facts.contains_key(*key)));
    let mut all = Vec::new();
    for key in keys {
        let (what, none) = (key.rsplit(':').next().unwrap_or(key), "nothing".to_owned());
        let sides = (expected.facts.get(key), found.facts.get(key));
        // Whether times move is known only of what has been seen before, and numbers of inodes are used again.
        if sides.0 == sides.1 || what.ends_with("-moves") && (sides.0.is_none() || sides.1.is_none()) {
            continue;
        }
        let shown = |side: Option<&String>| format!("{key} {}", side.unwrap_or(&none));
        all.push(difference(what, shown(sides.0), shown(sides.1)));
    }
    all
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.error)?;
        self.facts.iter().try_for_each(|(fact, value)| write!(f, " {fact}={value}"))
    }
}
