//! The manual pages and the completions of shells are those of the command line. `BLESS=1` writes them.
//!
//! `share/man/transom*.1` has a page for each command that `--help` lists, and `share/completions` a script for each
//! shell. `page` lays a page out.

mod page;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use clap::CommandFactory as _;
use clap_complete::{Shell, generate};

use crate::Cli;

fn share() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../share")
}

/// Returns the command line as `--help` shows it: without hidden commands, and without `help` for each of the others.
fn visible() -> clap::Command {
    let all = Cli::command();
    let listed = all.get_subcommands().filter(|command| !command.is_hide_set()).cloned();
    let about = all.get_about().cloned().unwrap_or_default();
    let mut command = clap::Command::new("transom").about(about).version(env!("CARGO_PKG_VERSION"));
    command = command.subcommand_required(true).disable_help_subcommand(true).subcommands(listed);
    command.build();
    command
}

/// Returns the pages of `command` and of everything below it, by file name.
fn pages(command: &clap::Command) -> BTreeMap<String, String> {
    let below = command.get_subcommands().filter(|command| !command.is_hide_set()).flat_map(pages);
    below.chain([(format!("{}.1", page::name(command)), page::render(command))]).collect()
}

/// Compares the files of `directory` for which `belongs` holds with `current`. With `BLESS=1`, makes them equal.
fn compare(directory: &Path, current: &BTreeMap<String, String>, belongs: impl Fn(&str) -> bool) {
    let names = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let committed: BTreeMap<_, _> =
        names.filter(|name| belongs(name)).map(|name| (name.clone(), read(&directory.join(name)))).collect();
    if std::env::var_os("BLESS").is_some() {
        committed.keys().for_each(|name| fs::remove_file(directory.join(name)).unwrap());
        current.iter().for_each(|(name, text)| fs::write(directory.join(name), text).unwrap());
        return;
    }
    let names = committed.keys().chain(current.keys());
    let stale: Vec<_> = names.filter(|name| committed.get(*name) != current.get(*name)).collect();
    assert!(stale.is_empty(), "update {stale:?}: BLESS=1 cargo test -p transom-cli --bins documents");
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap()
}

fn completion(shell: Shell) -> String {
    let mut script = Vec::new();
    generate(shell, &mut visible(), "transom", &mut script);
    // Shells do not need the spaces that some lines end with.
    let script = String::from_utf8(script).unwrap();
    script.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

#[test]
fn the_manual_pages_are_current() {
    let pages = pages(&visible());

    assert!(pages.len() > 20, "{:?}", pages.keys());
    compare(&share().join("man"), &pages, |name| name.starts_with("transom.") || name.starts_with("transom-"));
}

#[test]
fn a_page_has_the_options_of_its_command() {
    fn check(command: &clap::Command, pages: &BTreeMap<String, String>) {
        let page = pages[&format!("{}.1", page::name(command))].replace("\\-", "-");
        assert!(page.contains(&format!("\n.TH {} 1 ", page::name(command))), "{page}");
        for option in command.get_arguments().filter(|option| !option.is_hide_set()).filter_map(|arg| arg.get_long()) {
            assert!(page.contains(&format!("--{option}")), "{}: --{option}", page::name(command));
        }
        command.get_subcommands().filter(|below| !below.is_hide_set()).for_each(|below| check(below, pages));
    }
    check(&visible(), &pages(&visible()));
}

#[test]
fn the_completions_are_current() {
    for (shell, name) in [(Shell::Bash, "transom.bash"), (Shell::Zsh, "_transom"), (Shell::Fish, "transom.fish")] {
        let current = BTreeMap::from([(name.to_owned(), completion(shell))]);
        compare(&share().join("completions"), &current, |other| other == name);
    }
}

#[test]
fn bash_completes_commands_and_options() {
    let script = share().join("completions/transom.bash");
    let complete = |words: &[&str]| {
        // What bash does for the Tab key: the words, the index of the last, then the function.
        let ask = r#"source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
            _transom transom "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
            printf '%s\n' "${COMPREPLY[@]}""#;
        let output = Command::new("bash").args(["-euc", ask, "bash"]).arg(&script).args(words).output();
        output.map(|output| {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect::<Vec<_>>()
        })
    };
    let Ok(commands) = complete(&["transom", ""]) else {
        println!("SKIPPED: bash is not installed");
        return;
    };

    assert!(commands.contains(&"run".to_owned()) && commands.contains(&"mount".to_owned()), "{commands:?}");
    assert!(!commands.contains(&"demo-inside".to_owned()), "{commands:?}");
    assert_eq!(complete(&["transom", "run", "--shar"]).unwrap(), ["--share"]);
    assert_eq!(complete(&["transom", "run", "--vmm", ""]).unwrap(), ["qemu", "uml"]);
}
