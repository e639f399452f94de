//! Reads the command line: suggests what a mistyped subcommand was meant to be, and chooses the exit status of errors.

use std::{
    env,
    ffi::{OsStr, OsString},
    process::ExitCode,
};

use clap::{
    Command, Parser,
    error::{ContextKind, ContextValue, Error, ErrorKind},
};

/// Exit status of a usage error.
const USAGE: u8 = 2;
/// The same for `transom run` and `transom exec`, where small numbers are the command's.
pub(crate) const RUN_FAILED: u8 = 125;
/// Mistyped characters up to which a subcommand is suggested: two neighbours exchanged, one missing, one too many.
const DISTANCE_MAX: usize = 2;

/// Parses this process's command line.
///
/// # Errors
/// The exit status, after the help or the error has been printed.
pub(crate) fn parse<C: Parser>() -> Result<C, ExitCode> {
    let words: Vec<OsString> = env::args_os().collect();
    C::try_parse_from(&words).map_err(|error| {
        let error = with_suggestion(error, &C::command(), &words);
        // Standard output or error may be closed; there is nowhere to report that.
        let _ = error.print();
        match (error.use_stderr(), words.get(1)) {
            (false, _) => ExitCode::SUCCESS,
            (true, Some(first)) if first == "run" || first == "exec" => ExitCode::from(RUN_FAILED),
            (true, _) => ExitCode::from(USAGE),
        }
    })
}

/// Adds the nearest subcommand to the error of a mistyped one, if it has no suggestion yet.
fn with_suggestion(mut error: Error, command: &Command, words: &[OsString]) -> Error {
    if error.kind() != ErrorKind::InvalidSubcommand || error.get(ContextKind::SuggestedSubcommand).is_some() {
        return error;
    }
    let Some(ContextValue::String(mistyped)) = error.get(ContextKind::InvalidSubcommand) else { return error };
    if let Some(name) = nearest(mistyped, addressed(command, words)) {
        error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(vec![name]));
    }
    error
}

/// Returns the subcommand that `words` address, or `command` itself.
fn addressed<'a>(command: &'a Command, words: &[OsString]) -> &'a Command {
    words
        .iter()
        .filter_map(|word| OsStr::to_str(word))
        .fold(command, |command, word| command.find_subcommand(word).unwrap_or(command))
}

/// Returns the name of the subcommand that is most like `word`, if one is like it.
fn nearest(word: &str, command: &Command) -> Option<String> {
    let names = command.get_subcommands().filter(|command| !command.is_hide_set()).map(Command::get_name);
    let near = names.map(|name| (strsim::osa_distance(word, name), name));
    // In a word of two letters, two mistakes leave nothing.
    near.filter(|(distance, name)| *distance <= DISTANCE_MAX.min(name.len() - 1)).min().map(|(_, name)| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_subcommand_is_suggested_and_nothing_far_away() {
        let command = Command::new("x").subcommands(["run", "fs", "mount"].map(Command::new));
        for (word, expected) in
            [("rnu", Some("run")), ("rn", Some("run")), ("sf", Some("fs")), ("moutn", Some("mount"))]
        {
            assert_eq!(nearest(word, &command).as_deref(), expected, "{word}");
        }
        for word in ["", "install", "x"] {
            assert_eq!(nearest(word, &command), None, "{word}");
        }
    }
}
