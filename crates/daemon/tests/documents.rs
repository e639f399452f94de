//! The documents about the command line are complete. The manual page is made here: `BLESS=1` writes it.

use std::fs;
use std::path::{Path, PathBuf};
use transom_daemon::capabilities::CAPABILITIES;
use transom_daemon::options::command;

fn path(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

fn read(file: &str) -> String {
    fs::read_to_string(path(file)).unwrap()
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

/// Returns the manual page: the text of `transomd.1.in`, with the options as `--help` describes them.
fn manual_page() -> String {
    let template = read("share/man/transomd.1.in");
    let (before, after) = template.split_once(".\\\" OPTIONS\n").unwrap();
    let mut options = Vec::new();
    clap_mangen::Man::new(command()).render_options_section(&mut options).unwrap();
    format!("{before}{}{after}", String::from_utf8(options).unwrap())
}

#[test]
fn the_manual_page_is_current() {
    let current = manual_page();
    if std::env::var_os("BLESS").is_some() {
        fs::write(path("share/man/transomd.1"), &current).unwrap();
    }
    let is_current = read("share/man/transomd.1") == current;
    assert!(is_current, "update the page: BLESS=1 cargo test -p transom-daemon --test documents");
}

#[test]
fn the_manual_page_has_every_option() {
    let page = manual_page().replace("\\-", "-");

    let mut command = command();
    command.build();
    let shorts = command.get_arguments().filter_map(|argument| argument.get_short()).map(|short| format!("-{short}"));
    let options: Vec<_> = long_options().into_iter().map(|option| format!("--{option}")).chain(shorts).collect();
    assert!(options.len() > 50, "{options:?}");
    for option in options {
        assert!(mentions(&page, &option), "{option}");
    }
}

#[test]
fn the_manual_page_has_no_option_that_does_not_exist() {
    let page = read("share/man/transomd.1.in").replace("\\-", "-");
    let options = long_options();

    for (at, _) in page.match_indices("--") {
        let name: String = page[at + 2..].chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '-').collect();
        assert!(options.contains(&name), "--{name}");
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
