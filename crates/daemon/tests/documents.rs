//! The documents about the command line are complete. The manual page and the completions of shells are made here:
//! `BLESS=1` writes them.

use clap_complete::Shell;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use transom_daemon::capabilities::CAPABILITIES;
use transom_daemon::options::command;
use transom_host::survival::{Row, TABLE, Verdict, Way};

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

/// Checks that `file` has the text `current`. With `BLESS=1`, writes it.
fn assert_current(file: &str, current: &str) {
    if std::env::var_os("BLESS").is_some() {
        fs::write(path(file), current).unwrap();
    }
    let is_current = fs::read_to_string(path(file)).is_ok_and(|text| text == current);
    assert!(is_current, "update {file}: BLESS=1 cargo test -p transom-daemon --test documents");
}

#[test]
fn the_manual_page_is_current() {
    assert_current("share/man/transomd.1", &manual_page());
}

#[test]
fn the_completions_are_current() {
    for (shell, name) in [(Shell::Bash, "transomd.bash"), (Shell::Zsh, "_transomd"), (Shell::Fish, "transomd.fish")] {
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut command(), "transomd", &mut script);
        let script = String::from_utf8(script).unwrap();
        let script: String = script.lines().map(|line| format!("{}\n", line.trim_end())).collect();
        assert_current(&format!("share/completions/{name}"), &script);
    }
}

#[test]
fn bash_completes_options_and_their_values() {
    let complete = |last: &[&str]| {
        let ask = r#"source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
            _transomd transomd "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
            printf '%s\n' "${COMPREPLY[@]}""#;
        let script = path("share/completions/transomd.bash");
        let output = Command::new("bash").args(["-euc", ask, "bash"]).arg(script).arg("transomd").args(last).output();
        output.map(|output| {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8(output.stdout).unwrap()
        })
    };
    let Ok(options) = complete(&["--shared"]) else {
        println!("SKIPPED: bash is not installed");
        return;
    };

    assert_eq!(options, "--shared-dir\n");
    assert_eq!(complete(&["--sandbox", ""]).unwrap(), "namespace\nchroot\nnone\n");
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
    let installed = read("share/vhost-user/60-transomd.json");

    let features = |text: &str| {
        let features = text.split_once("\"features\": [").unwrap().1.split_once(']').unwrap().0.to_owned();
        features.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(features(&installed), features(CAPABILITIES));
    assert!(installed.contains("\"binary\": \"@bindir@/transomd\""), "the path is filled in at installation");
}

/// Returns the table of what survives what, as the page has it.
fn survival_table() -> String {
    let cell = |verdict| match verdict {
        Verdict::Works => "works".to_owned(),
        Verdict::Limited(limit) => format!("works; {limit}"),
        Verdict::Refused(reason) => format!("**refused**: {reason}"),
        Verdict::Excluded(reason) => format!("**not at the start**: {reason}"),
    };
    let line = |row: &Row| {
        let cells = [Way::Migration, Way::Upgrade, Way::Restart].map(|way| cell(row.verdict(way)));
        format!("| `{}` | {} |\n", row.option, cells.join(" | "))
    };
    TABLE.iter().map(line).collect()
}

#[test]
fn the_table_of_what_survives_what_is_current() {
    const FILE: &str = "docs/survival.md";
    let page = read(FILE);
    let lines = page.split_inclusive('\n');
    let is_row = |line: &&str| line.starts_with("| `--");
    let before: String = lines.clone().take_while(|line| !is_row(line)).collect();
    let after: String = lines.skip_while(|line| !is_row(line)).skip_while(is_row).collect();
    assert_current(FILE, &[before, survival_table(), after].concat());
}

#[test]
fn the_help_names_what_does_not_start_together() {
    let command = command();
    for (option, way) in [("upgradable", Way::Upgrade), ("resilient", Way::Restart)] {
        let argument = command.get_arguments().find(|argument| argument.get_long() == Some(option)).unwrap();
        let help = argument.get_long_help().unwrap().to_string();
        for row in TABLE {
            let is_excluded = matches!(row.verdict(way), Verdict::Excluded(_));
            assert_eq!(mentions(&help, row.option), is_excluded, "{option} and {}: {help}", row.option);
        }
    }
}
