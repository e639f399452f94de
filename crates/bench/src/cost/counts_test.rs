use super::*;

fn counts(instructions: f64, calls: &[(&str, f64)]) -> Counts {
    let system_calls = calls.iter().map(|&(name, count)| (name.to_owned(), count)).collect();
    Counts { instructions, system_calls, ..Counts::default() }
}

#[test]
fn a_median_drops_what_one_request_alone_did() {
    let usual = counts(1000.0, &[("read", 1.0)]);
    let disturbed = counts(9000.0, &[("read", 1.0), ("futex", 3.0)]);

    assert_eq!(Counts::medians(&[usual.clone(), disturbed, usual.clone()]), usual);
}

#[test]
fn a_difference_has_every_call() {
    let before = counts(10.0, &[("read", 1.0)]);
    let after = counts(30.0, &[("read", 3.0), ("statx", 1.0)]);

    let difference = after.since(&before);
    assert_eq!(difference, counts(20.0, &[("read", 2.0), ("statx", 1.0)]));
    assert_eq!(difference.divided_by(2.0).all_system_calls(), 1.5);
}
