use super::*;

const DOCUMENT: &str = include_str!("../../../docs/metrics.md");

#[test]
fn names_end_with_their_unit() {
    for family in ALL.iter().filter(|family| !family.unit.is_empty()) {
        assert!(family.name.ends_with(&format!("_{}", family.unit)), "{}", family.name);
    }
}

#[test]
fn the_document_lists_every_metric() {
    let rows: Vec<&str> = DOCUMENT.lines().filter(|line| line.starts_with("| `")).collect();
    let expected: Vec<String> = ALL
        .iter()
        .map(|Family { name, kind, unit, label, help }| {
            let label = if label.is_empty() { String::new() } else { format!("`{label}`") };
            let kind = format!("{kind:?}").to_lowercase();
            format!("| `{name}` | {kind} | {unit} | {label} | {help} |")
        })
        .collect();
    assert_eq!(rows, expected, "the rows of docs/metrics.md follow families.rs:\n{}", expected.join("\n"));
}
