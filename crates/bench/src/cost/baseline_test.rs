use super::*;

fn baseline(line: &str) -> Baseline {
    Baseline::parse(line).unwrap()
}

#[test]
fn a_written_baseline_is_read_as_it_was() {
    let baseline = baseline("getattr 1000 3 2\nlookup 2000 4 0\n");

    assert_eq!(Baseline::parse(&baseline.to_text(OF_TRANSOMD)).unwrap(), baseline);
}

#[test]
fn five_percent_more_instructions_are_allowed_and_six_are_not() {
    let before = baseline("getattr 1000 3 2");

    assert!(before.worse(&baseline("getattr 1050 3 2")).is_empty());
    let worse = before.worse(&baseline("getattr 1060 3 2"));
    assert!(worse.len() == 1 && worse[0].contains("+6.0 %"), "{worse:?}");
}

#[test]
fn one_system_call_or_one_allocation_more_is_too_many() {
    let before = baseline("getattr 1000 3 0");

    assert!(before.worse(&baseline("getattr 1000 4 0"))[0].contains("4 system calls"));
    assert!(before.worse(&baseline("getattr 1000 3 1"))[0].contains("1 allocations"));
}

#[test]
fn less_is_not_worse() {
    assert!(baseline("getattr 1000 3 2").worse(&baseline("getattr 10 1 0")).is_empty());
}

#[test]
fn of_two_measurements_each_figure_is_the_lower_one() {
    let (one, other) = (baseline("getattr 10 3 2\nlookup 5 4 1"), baseline("lookup 6 3 1\ngetattr 9 4 3"));

    assert_eq!(one.lowest(&other), baseline("getattr 9 3 2\nlookup 5 3 1"));
}

#[test]
fn an_operation_that_one_side_lacks_is_told() {
    assert_eq!(baseline("getattr 1 1 1").worse(&baseline("lookup 1 1 1")).len(), 2);
}

#[test]
fn a_line_of_another_shape_is_an_error() {
    assert!(Baseline::parse("getattr 1 2").unwrap_err().to_string().contains("getattr 1 2"));
    assert!(Baseline::parse("getattr 1 2 x").is_err());
}
