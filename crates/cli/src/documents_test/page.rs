//! A manual page: what `--help` says, laid out for man(1).

use clap::Command;
use clap_mangen::Man;

/// Each section comes with this definition of the apostrophe, which is needed once.
const APOSTROPHE: &str = ".ie \\n(.g .ds Aq \\(aq\n.el .ds Aq '\n";

/// Returns the name of the command's page: `transom-fs-ls`.
pub(super) fn name(command: &Command) -> &str {
    command.get_display_name().unwrap_or_else(|| command.get_name())
}

/// Returns the page of `command`, which must be built.
pub(super) fn render(command: &Command) -> String {
    let man = Man::new(command.clone());
    let mut page = Vec::new();
    let mut sections = vec![Man::render_name_section, Man::render_synopsis_section, Man::render_description_section];
    if command.get_arguments().any(|argument| !argument.is_hide_set()) {
        sections.push(Man::render_options_section);
    }
    if command.has_subcommands() {
        sections.push(Man::render_subcommands_section);
    }
    for section in sections {
        section(&man, &mut page).expect("a vector takes every byte");
    }
    let mut page = String::from_utf8(page).expect("help is UTF-8");
    if let Some(after) = command.get_after_long_help().or_else(|| command.get_after_help()) {
        page += &closing(&after.to_string());
    }
    page += ".SH \"SEE ALSO\"\n";
    page += &see_also(command);
    let title = format!(".TH {} 1 \"\" Transom Transom\n", name(command));
    format!("{APOSTROPHE}{title}{}", page.replace(APOSTROPHE, ""))
}

fn see_also(command: &Command) -> String {
    match command.get_bin_name().and_then(|words| words.rsplit_once(' ')) {
        None => ".BR transomd (1)\n".to_owned(),
        Some(("transom", _)) => ".BR transom (1),\n.BR transomd (1)\n".to_owned(),
        Some((parent, _)) => format!(".BR {} (1)\n", escape(&parent.replace(' ', "-"))),
    }
}

/// Lays out what `--help` ends with: some words and a colon begin a section, indented lines stay as they are.
fn closing(text: &str) -> String {
    let mut page = String::new();
    let mut is_verbatim = false;
    for line in text.lines() {
        let is_indented = line.starts_with("  ") || (line.is_empty() && is_verbatim);
        if is_indented != is_verbatim {
            page += if is_indented { ".nf\n" } else { ".fi\n.PP\n" };
            is_verbatim = is_indented;
        }
        match heading(line) {
            Some((heading, rest)) => {
                page += &format!(".SH \"{}\"\n", heading.to_uppercase());
                page += &text_line(rest.trim_start());
            }
            None if line.is_empty() => page += if is_verbatim { "\n" } else { ".PP\n" },
            None => page += &text_line(line.strip_prefix("  ").unwrap_or(line)),
        }
    }
    page + if is_verbatim { ".fi\n" } else { "" }
}

/// Splits `Exit status: 0` into the heading and the rest of the line.
fn heading(line: &str) -> Option<(&str, &str)> {
    let (heading, rest) = line.split_once(':')?;
    ["Examples", "Exit status"].contains(&heading).then_some((heading, rest))
}

fn text_line(line: &str) -> String {
    if line.is_empty() { String::new() } else { format!("{}\n", escape(line)) }
}

/// Escapes what troff would interpret.
fn escape(line: &str) -> String {
    let escaped = line.replace('\\', "\\e").replace('-', "\\-");
    if escaped.starts_with(['.', '\'']) { format!("\\&{escaped}") } else { escaped }
}

#[test]
fn what_help_ends_with_is_laid_out() {
    let text = "Examples:\n  transom top\n      .First.\n\n  two\nExit status: that\nof it.";

    let expected =
        ".SH \"EXAMPLES\"\n.nf\ntransom top\n    .First.\n\ntwo\n.fi\n.PP\n.SH \"EXIT STATUS\"\nthat\nof it.\n";
    assert_eq!(closing(text), expected);
    assert_eq!(escape(".so a-b\\c"), "\\&.so a\\-b\\ec");
}
