//! What is written about the command line covers the command line.

use std::fs;
use std::path::Path;
use transom_daemon::capabilities::CAPABILITIES;
use transom_daemon::options::command;

fn read(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    fs::read_to_string(root.join(path)).unwrap()
}

/// Every long option, aliases included.
fn long_options() -> Vec<String> {
    let mut command = command();
    command.build();
    let names = command.get_arguments().flat_map(|argument| {
        let aliases = argument.get_visible_aliases().unwrap_or_default();
        argument.get_long().into_iter().chain(aliases).map(str::to_owned).collect::<Vec<_>>()
    });
    names.collect()
}

/// Whether `text` has `option` as a whole, not as the beginning of a longer one.
fn mentions(text: &str, option: &str) -> bool {
    let ends = |rest: &str| !rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '-');
    text.match_indices(option).any(|(at, _)| ends(&text[at + option.len()..]))
}

#[test]
fn the_manual_page_has_every_option() {
    let page = read("share/man/transomd.1");

    let options = long_options();
    assert!(options.len() > 50, "{options:?}");
    for option in options {
        let is_entry = |line: &str| line.starts_with(".It Fl") && mentions(line, &format!("Fl -{option}"));
        assert!(page.lines().any(is_entry), "--{option}");
    }
}

#[test]
fn the_manual_page_has_every_short_option() {
    let page = read("share/man/transomd.1");

    let mut command = command();
    command.build();
    for short in command.get_arguments().filter_map(|argument| argument.get_short()) {
        let is_entry = |line: &str| line.starts_with(".It Fl") && mentions(line, &format!("Fl {short}"));
        assert!(page.lines().any(is_entry), "-{short}");
    }
}

#[test]
fn the_manual_page_has_no_option_that_is_not_there() {
    let page = read("share/man/transomd.1");
    let options = long_options();

    for line in page.lines().filter(|line| line.starts_with(".It Fl -")) {
        let name: String = line[8..].chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '-').collect();
        assert!(options.contains(&name), "--{name}");
    }
}

#[test]
fn the_manual_page_states_the_defaults() {
    let page = read("share/man/transomd.1").replace('\n', " ");

    for (option, stated) in [
        ("dax_policy", ".Cm auto (default)"),
        ("thread_pool_size", "by default 4"),
        ("poll_us", "by default 100"),
        ("inode_limit", "by default 16777216"),
        ("squash_as", "by default 0:0"),
        ("posix_acl", ".Cm never (default)"),
        ("inode_file_handles", ".Cm prefer (default)"),
        ("seccomp", ".Cm kill (default)"),
        ("migration_mode", ".Cm find-paths"),
    ] {
        let command = command();
        let argument = command.get_arguments().find(|argument| argument.get_id() == option).unwrap();
        let default = argument.get_default_values()[0].to_str().unwrap();
        assert!(stated.contains(default), "{option}: {default}");
        assert!(page.contains(stated), "{option}: {stated}");
    }
}

#[test]
fn the_comparison_with_virtiofsd_has_every_option() {
    let text = read("docs/virtiofsd-options.md");

    for option in long_options() {
        assert!(mentions(&text, &format!("--{option}")), "--{option}");
    }
}

#[test]
fn the_installed_description_has_the_printed_features() {
    let installed = read("share/vhost-user/50-transomd.json");

    let features = |text: &str| {
        let features = text.split_once("\"features\": [").unwrap().1.split_once(']').unwrap().0.to_owned();
        features.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(features(&installed), features(CAPABILITIES));
    assert!(installed.contains("\"binary\": \"@bindir@/transomd\""), "the path is filled in at installation");
}
