//! `transom overlays`, `diff`, `commit` and `discard`: what guests have changed in overlays of directories.

mod list;

use std::{
    fs,
    io::{self, IsTerminal, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Args;
use indicatif::BinaryBytes;
use serde_json::{Value, json};
use transom_overlay::{Change, Committed, Difference, Error, Overlay, Sum, containing, controls_display, patch};

pub(crate) use list::Overlays;

use crate::tell::path_in_line;

/// Show what guests have changed in an overlay of a directory
///
/// Lists the files that `transom run --share DIR,overlay` has added, changed or removed, with their sizes. The
/// directory itself is as it was.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Diff {
    /// The directory that was shared
    #[arg(value_name = "DIR", default_value = ".")]
    directory: PathBuf,

    /// Show the changes of text as a unified diff, for patch -p1 or git apply
    #[arg(long, short = 'p')]
    patch: bool,

    /// Print a JSON object instead of a table
    #[arg(long, conflicts_with = "patch")]
    json: bool,
}

/// Write what guests have changed in an overlay into the directory
///
/// Refuses what has been changed on the host too since the guest saw it, and names it; then nothing is written. A
/// commit that is stopped is finished by the next one on DIR. Set-user-id and set-group-id bits of files are not
/// carried over, and devices are refused.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Commit {
    /// The directory that was shared
    #[arg(value_name = "DIR")]
    directory: PathBuf,

    /// Commit only these files and directories, with all that is in them; relative to DIR
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,

    /// Overwrite what has been changed on the host too
    #[arg(long, short = 'f')]
    force: bool,
}

/// Throw away what guests have changed in an overlay
///
/// The directory stays as it is. The next run begins with it.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Discard {
    /// The directory that was shared
    #[arg(value_name = "DIR")]
    directory: PathBuf,

    /// Discard only the changes of these files and directories; relative to DIR
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  transom run --root / --share .,overlay -- make test
      Run a command that can change everything in this directory, and nothing of it on the host.
  transom diff --patch
      Show what it has changed.
  transom overlays
      List the directories in which something waits to be committed or discarded.
  transom commit . src docs/notes.md
      Write some of it into the directory.
  transom discard .
      Throw the rest away.";

/// The end of a command: nothing was changed.
type Failure = (String, u8);

const FAILED: u8 = 1;

impl Diff {
    pub(crate) fn execute(self) -> ExitCode {
        end(self.show())
    }

    fn show(&self) -> Result<(), Failure> {
        let overlay = match open(&self.directory) {
            Err((_, 0)) if self.json => return print(&format!("{}\n", changes_json(&self.directory, &[]))),
            opened => opened?,
        };
        let failed = |error: Error| (refusal(&error, overlay.directory()), FAILED);
        let changes = overlay.changes().map_err(failed)?;
        if self.json {
            return print(&format!("{}\n", changes_json(overlay.directory(), &changes)));
        }
        if self.patch {
            return print_patch(&overlay, &changes);
        }
        let mut text = String::new();
        for change in changes.iter().filter(|change| change.difference != Difference::Times) {
            text.push_str(&line(change));
        }
        print(&text)?;
        print(&format!("{}\n", summary(&changes)))
    }
}

impl Commit {
    pub(crate) fn execute(self) -> ExitCode {
        end(self.write())
    }

    fn write(&self) -> Result<(), Failure> {
        let mut overlay = open_quietly(&self.directory)?;
        let directory = overlay.directory().to_owned();
        let result = overlay.commit(&self.paths, self.force);
        // The error says it too.
        if !matches!(result, Err(Error::Replaced(_))) {
            tell_remark(&overlay);
        }
        let committed = result.map_err(|error| (refusal(&error, &directory), FAILED))?;
        tell_set_id(&committed);
        print(&format!("committed {} to {}\n", amount(committed.sum), directory.display()))
    }
}

impl Discard {
    pub(crate) fn execute(self) -> ExitCode {
        end(self.throw_away())
    }

    fn throw_away(&self) -> Result<(), Failure> {
        let mut overlay = open_quietly(&self.directory)?;
        let directory = overlay.directory().to_owned();
        let result = overlay.discard(&self.paths);
        tell_remark(&overlay);
        let sum = result.map_err(|error| (refusal(&error, &directory), FAILED))?;
        let what = sum.map_or("the changes".into(), amount);
        print(&format!("discarded {what} in {}\n", directory.display()))
    }
}

/// Says which files have lost set-id bits, if some have.
pub(crate) fn tell_set_id(committed: &Committed) {
    if committed.without_set_id > 0 {
        eprintln!("transom: {} files without their set-user-id or set-group-id bits", committed.without_set_id);
    }
}

/// Returns what a commit would write, in words.
fn summary(changes: &[Change]) -> String {
    match counted(changes) {
        None => "nothing changed".into(),
        Some(count) => format!("{count}, {} to write", BinaryBytes(Sum::of(changes).bytes)),
    }
}

/// Returns the number of files and directories that differ, in words, if any do.
pub(crate) fn counted(changes: &[Change]) -> Option<String> {
    let sum = Sum::of(changes);
    (sum.files + sum.directories > 0).then(|| amount(sum))
}

/// Returns the text of an error, with what is in conflict and the next step.
pub(crate) fn refusal(error: &Error, directory: &Path) -> String {
    /// As many as fit on a screen.
    const SHOWN_MAX: usize = 20;
    let Error::Conflicts(conflicts) = error else { return error.to_string() };
    let mut text = format!("{error}, and nothing was committed:\n");
    for conflict in conflicts.iter().take(SHOWN_MAX) {
        text.push_str(&format!("  {}: {}\n", path_in_line(&conflict.path), conflict.reason));
    }
    if conflicts.len() > SHOWN_MAX {
        text.push_str(&format!("  and {} more\n", conflicts.len() - SHOWN_MAX));
    }
    let word = quoted(directory);
    text.push_str(&format!(
        "`transom diff --patch {word}` shows the guest's version; `transom commit --force {word} PATH` overwrites the \
         host's, `transom discard {word} PATH` keeps it"
    ));
    text
}

/// Returns a path as a word for a shell.
pub(crate) fn quoted(path: &Path) -> String {
    let text = path.to_string_lossy();
    let is_plain = |letter: char| letter.is_alphanumeric() || "/._-+,:@%=".contains(letter);
    if text.chars().all(is_plain) { text.into_owned() } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

/// Returns the changes as an object; names that are not UTF-8 are approximated.
pub(crate) fn changes_json(directory: &Path, changes: &[Change]) -> Value {
    let listed = changes.iter().filter(|change| change.difference != Difference::Times);
    let entries = listed.map(|change| {
        let kind = change.after.or(change.before).map(|meta| format!("{:?}", meta.kind).to_lowercase());
        json!({
            "path": change.path.to_string_lossy(),
            "change": change.difference.as_str(),
            "kind": kind,
            "bytes": change.after.map(|meta| meta.len_bytes),
            "mode": change.after.map(|meta| format!("{:04o}", meta.mode)),
        })
    });
    let entries: Vec<_> = entries.collect();
    let sum = Sum::of(changes);
    json!({
        "directory": directory.to_string_lossy(),
        "files": sum.files,
        "directories": sum.directories,
        "bytes": sum.bytes,
        "changes": entries,
    })
}

fn open(directory: &Path) -> Result<Overlay, Failure> {
    let overlay = open_quietly(directory)?;
    tell_remark(&overlay);
    Ok(overlay)
}

/// Says what became of a command that was stopped, if there was one.
fn tell_remark(overlay: &Overlay) {
    if let Some(remark) = overlay.remark() {
        eprintln!("transom: {remark}");
    }
}

fn open_quietly(directory: &Path) -> Result<Overlay, Failure> {
    let opened = Overlay::open(directory).map_err(|error| (refusal(&error, directory), FAILED))?;
    if let Some(overlay) = opened {
        return Ok(overlay);
    }
    let above = fs::canonicalize(directory).ok().and_then(|real| containing(&real).ok().flatten());
    let hint = above.map_or_else(
        || "`transom run --share DIR,overlay` makes one".into(),
        |above| format!("{} has one", above.display()),
    );
    // Nothing was changed and nothing is wrong.
    Err((format!("there are no changes in an overlay of {}; {hint}", directory.display()), 0))
}

fn amount(sum: Sum) -> String {
    let of = |number: u64, one: &str, many: &str| match number {
        0 => None,
        1 => Some(format!("1 {one}")),
        _ => Some(format!("{number} {many}")),
    };
    let parts = [of(sum.files, "file", "files"), of(sum.directories, "directory", "directories")];
    let parts: Vec<_> = parts.into_iter().flatten().collect();
    if parts.is_empty() { "nothing but times".into() } else { parts.join(" and ") }
}

fn line(change: &Change) -> String {
    let len = |meta: Option<transom_overlay::Meta>| meta.map_or(0, |meta| meta.len_bytes);
    let is_directory = change.after.or(change.before).is_some_and(|meta| meta.is_directory());
    let detail = match change.difference {
        _ if is_directory && change.difference != Difference::Mode => String::new(),
        Difference::Added => format!(" ({})", BinaryBytes(len(change.after))),
        Difference::Changed => {
            format!(" ({} to {})", BinaryBytes(len(change.before)), BinaryBytes(len(change.after)))
        }
        Difference::Mode => {
            let mode = |meta: Option<transom_overlay::Meta>| meta.map_or(0, |meta| meta.mode);
            format!(" ({:04o} to {:04o})", mode(change.before), mode(change.after))
        }
        Difference::Linked | Difference::Times | Difference::Removed => String::new(),
    };
    let path = if change.path.as_os_str().is_empty() { ".".into() } else { path_in_line(&change.path) };
    format!("{:8} {path}{}{detail}\n", change.difference.as_str(), if is_directory { "/" } else { "" })
}

/// Prints the patch file by file: all of it together can be larger than the memory.
fn print_patch(overlay: &Overlay, changes: &[Change]) -> Result<(), Failure> {
    for change in changes {
        let mut text = Vec::new();
        let made = patch(overlay, std::slice::from_ref(change), &mut text);
        made.map_err(|error| (refusal(&error, overlay.directory()), FAILED))?;
        match write_out(&text) {
            // Who reads has seen enough.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => break,
            result => result.map_err(unwritten)?,
        }
    }
    Ok(())
}

fn print(text: &str) -> Result<(), Failure> {
    match write_out(text.as_bytes()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result.map_err(unwritten),
    }
}

fn unwritten(error: io::Error) -> Failure {
    (format!("cannot write the output: {error}"), FAILED)
}

/// Writes to standard output; on a terminal, without what would control it.
fn write_out(bytes: &[u8]) -> io::Result<()> {
    let mut output = io::stdout().lock();
    let written = if output.is_terminal() {
        let text = String::from_utf8_lossy(bytes);
        let is_plain = |letter: char| !controls_display(letter) || "\n\t".contains(letter);
        let plain = |letter: char| if is_plain(letter) { letter } else { '\u{fffd}' };
        output.write_all(text.chars().map(plain).collect::<String>().as_bytes())
    } else {
        output.write_all(bytes)
    };
    written.and_then(|()| output.flush())
}

fn end(result: Result<(), Failure>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err((text, status)) => {
            eprintln!("transom: {text}");
            ExitCode::from(status)
        }
    }
}
