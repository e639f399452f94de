//! The table of crates in `docs/architecture.md` against the workspace.
//!
//! The page must say which crate depends on which, and the rules that it states about dependencies must hold.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

/// Crates that handle what a guest sends.
const HOST_SIDE: [&str; 3] = ["host", "shim", "daemon"];
/// Crates that act as a guest.
const GUEST_SIDE: [&str; 7] = ["agent", "guest", "virtio-drivers", "kernel", "user", "c", "mount"];
/// Crates of the executables that are installed.
const SHIPPED: [&str; 3] = ["daemon", "cli", "agent"];
/// Crates that exist for tests.
const TEST_KITS: [&str; 3] = ["conformance", "fuzzing", "suite"];

/// Names of crates, without `transom-`.
type Names = BTreeSet<String>;

/// The crates of this workspace that a crate depends on.
#[derive(Debug, Default, PartialEq, Eq)]
struct Dependencies {
    /// Of the crate itself and of its build script.
    normal: Names,
    /// Of its tests and examples only.
    dev: Names,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the table's rows in their order.
fn table() -> Vec<(String, Dependencies)> {
    let page = fs::read_to_string(root().join("docs/architecture.md")).unwrap();
    let rows: Vec<_> = page.lines().filter_map(parse_row).collect();
    assert!(!rows.is_empty(), "docs/architecture.md has no table of crates");
    rows
}

/// Parses ``| `crates/NAME` | text | `a`, `b` | `c` |``; returns `None` for other lines.
fn parse_row(line: &str) -> Option<(String, Dependencies)> {
    let name = line.strip_prefix("| `crates/")?.split_once('`')?.0;
    let cells: Vec<_> = line.trim_end().trim_matches('|').split(" | ").collect();
    let [_, _, normal, dev] = cells[..] else { panic!("the row of {name} has {} cells, expected 4", cells.len()) };
    Some((name.to_owned(), Dependencies { normal: names(name, normal), dev: names(name, dev) }))
}

/// Parses `` `a`, `b` ``, or `-` for no names.
fn names(row: &str, cell: &str) -> Names {
    let cell = cell.trim();
    if cell == "-" {
        return Names::new();
    }
    let parse = |name: &str| name.trim().strip_prefix('`')?.strip_suffix('`').map(str::to_owned);
    cell.split(',').map(|name| parse(name).unwrap_or_else(|| panic!("the row of {row} has `{cell}`"))).collect()
}

/// Returns what the manifests say, by crate.
fn workspace() -> BTreeMap<String, Dependencies> {
    let arguments = ["metadata", "--no-deps", "--offline", "--format-version=1", "--manifest-path"];
    let output = Command::new(env!("CARGO")).args(arguments).arg(root().join("Cargo.toml")).output().unwrap();
    assert!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    metadata["packages"].as_array().unwrap().iter().map(package).collect()
}

fn package(package: &Value) -> (String, Dependencies) {
    let mut dependencies = Dependencies::default();
    for dependency in package["dependencies"].as_array().unwrap() {
        // Only crates of the workspace have a path.
        if dependency["path"].is_null() {
            continue;
        }
        let names = match dependency["kind"].as_str() {
            None | Some("build") => &mut dependencies.normal,
            Some("dev") => &mut dependencies.dev,
            Some(kind) => panic!("a dependency of unknown kind {kind}"),
        };
        names.insert(short_name(&dependency["name"]));
    }
    (short_name(&package["name"]), dependencies)
}

fn short_name(name: &Value) -> String {
    let name = name.as_str().unwrap();
    name.strip_prefix("transom-").unwrap_or_else(|| panic!("the crate {name} is not named transom-…")).to_owned()
}

/// Returns what `name` depends on, directly or not, without dev-dependencies.
fn reachable(workspace: &BTreeMap<String, Dependencies>, name: &str) -> Names {
    let mut found = Names::new();
    let mut left = vec![name];
    while let Some(name) = left.pop() {
        for next in &workspace[name].normal {
            if found.insert(next.clone()) {
                left.push(next);
            }
        }
    }
    found
}

/// Panics if a crate of `from` depends on one of `to`, directly or not.
fn assert_apart(from: &[&str], to: &[&str]) {
    let workspace = workspace();
    for name in to {
        assert!(workspace.contains_key(*name), "there is no crate {name}");
    }
    for name in from {
        let reached = reachable(&workspace, name);
        let wrong: Vec<_> = to.iter().filter(|to| reached.contains(**to)).collect();
        assert!(wrong.is_empty(), "{name} depends on {wrong:?}");
    }
}

#[test]
fn the_table_of_crates_says_what_the_manifests_say() {
    let mut rows = BTreeMap::new();
    for (name, dependencies) in table() {
        assert!(rows.insert(name.clone(), dependencies).is_none(), "{name} has two rows");
    }
    let workspace = workspace();
    for (name, dependencies) in &workspace {
        let row = rows.remove(name).unwrap_or_else(|| panic!("docs/architecture.md has no row for crates/{name}"));
        assert_eq!(row, *dependencies, "docs/architecture.md (left) and the manifest of crates/{name} (right) differ");
    }
    assert!(rows.is_empty(), "docs/architecture.md has rows for crates that do not exist: {:?}", rows.keys());
}

#[test]
fn a_crate_depends_on_crates_in_rows_above_its_own() {
    let mut above = Names::new();
    for (name, dependencies) in table() {
        let below: Vec<_> = dependencies.normal.difference(&above).collect();
        assert!(below.is_empty(), "{name} depends on {below:?}, whose rows are below its own");
        above.insert(name);
    }
}

#[test]
fn the_host_side_does_not_depend_on_the_guest_side() {
    assert_apart(&HOST_SIDE, &GUEST_SIDE);
}

#[test]
fn the_guest_side_does_not_depend_on_the_host_side() {
    assert_apart(&GUEST_SIDE, &HOST_SIDE);
}

#[test]
fn installed_executables_do_not_contain_test_kits() {
    assert_apart(&SHIPPED, &TEST_KITS);
}
