//! Changes of text as a unified diff, which patch(1) and `git apply` understand.

use std::{
    io::{self, Read, Write},
    os::unix::ffi::OsStrExt,
    path::Path,
    time::Duration,
};

use similar::{Algorithm, TextDiff};

use crate::{Change, Difference, Error, Kind, Overlay, Result, tree::Tree};

/// A file that is longer is treated as binary: a comparison takes memory and time.
const TEXT_LEN_MAX: u64 = 4 << 20;
/// After this time, the rest of a file is one change.
const COMPARE_MAX: Duration = Duration::from_secs(2);
/// Lines of context, as diff(1) has them.
const CONTEXT: usize = 3;

/// Writes the changes of regular files and symbolic links to `to` as a patch; other changes and binary files are
/// mentioned in it.
///
/// # Errors
/// If a file cannot be read, or the patch not be written.
pub fn patch(overlay: &Overlay, changes: &[Change], to: &mut dyn Write) -> Result<()> {
    let (upper, lower) = (overlay.upper()?, overlay.lower()?);
    for change in changes {
        one(&upper, &lower, change, to).map_err(Error::io(|| format!("cannot show {:?}", change.path)))?;
    }
    Ok(())
}

fn one(upper: &Tree, lower: &Tree, change: &Change, to: &mut dyn Write) -> io::Result<()> {
    let path = quoted(&change.path);
    if change.difference == Difference::Mode
        && let (Some(before), Some(after)) = (change.before, change.after)
    {
        writeln!(to, "diff --git {} {}", prefixed("a/", &path), prefixed("b/", &path))?;
        return writeln!(to, "old mode {:06o}\nnew mode {:06o}", git_mode(&before), git_mode(&after));
    }
    if !matches!(change.difference, Difference::Added | Difference::Changed | Difference::Linked | Difference::Removed)
    {
        return Ok(());
    }
    let is_shown = |meta: &crate::Meta| matches!(meta.kind, Kind::File | Kind::Symlink);
    let (before, after) = (change.before.filter(is_shown), change.after.filter(is_shown));
    if before.is_none() && after.is_none() {
        return Ok(());
    }
    writeln!(to, "diff --git {} {}", prefixed("a/", &path), prefixed("b/", &path))?;
    match (&before, &after) {
        (None, Some(after)) => writeln!(to, "new file mode {:06o}", git_mode(after))?,
        (Some(before), None) => writeln!(to, "deleted file mode {:06o}", git_mode(before))?,
        (Some(before), Some(after)) if git_mode(before) != git_mode(after) => {
            writeln!(to, "old mode {:06o}\nnew mode {:06o}", git_mode(before), git_mode(after))?;
        }
        _ => {}
    }
    let old = before.map_or(Ok(Some(Vec::new())), |meta| content(lower, &change.path, meta.kind))?;
    let new = after.map_or(Ok(Some(Vec::new())), |meta| content(upper, &change.path, meta.kind))?;
    let from = if before.is_some() { prefixed("a/", &path) } else { "/dev/null".into() };
    let into = if after.is_some() { prefixed("b/", &path) } else { "/dev/null".into() };
    match (old, new) {
        (Some(old), Some(new)) if old == new => Ok(()),
        (Some(old), Some(new)) => {
            // git ends a name with spaces by a tab; patch(1) would take its last word for a date.
            let end = if path.contains(' ') { "\t" } else { "" };
            let end_of = |meta: Option<crate::Meta>| if meta.is_some() { end } else { "" };
            writeln!(to, "--- {from}{}\n+++ {into}{}", end_of(before), end_of(after))?;
            hunks(&old, &new, to)
        }
        _ => writeln!(to, "Binary files {from} and {into} differ"),
    }
}

/// Writes the differences of two texts that differ.
fn hunks(old: &[u8], new: &[u8], to: &mut dyn Write) -> io::Result<()> {
    // For patch(1) and git, nothing but a line feed ends a line.
    let [old, new] = [old, new].map(|text| text.split_inclusive(|&byte| byte == b'\n').collect::<Vec<_>>());
    let mut configuration = TextDiff::configure();
    let diff = configuration.algorithm(Algorithm::Myers).timeout(COMPARE_MAX).diff_slices::<[u8]>(&old, &new);
    for hunk in diff.unified_diff().context_radius(CONTEXT).iter_hunks() {
        writeln!(to, "{}", hunk.header())?;
        for change in hunk.iter_changes() {
            write!(to, "{}", change.tag())?;
            to.write_all(change.value())?;
            if !change.value().ends_with(b"\n") {
                writeln!(to, "\n\\ No newline at end of file")?;
            }
        }
    }
    Ok(())
}

/// Returns a file's text or a link's target, or `None` if it is not text.
fn content(tree: &Tree, path: &Path, kind: Kind) -> io::Result<Option<Vec<u8>>> {
    if kind == Kind::Symlink {
        let node = tree.node(path).map_err(io::Error::other)?.ok_or(io::ErrorKind::NotFound)?;
        return Ok(Some(node.target()?.as_bytes().to_vec()));
    }
    let file = tree.file(path)?;
    let mut bytes = Vec::new();
    file.take(TEXT_LEN_MAX + 1).read_to_end(&mut bytes)?;
    Ok((bytes.len() as u64 <= TEXT_LEN_MAX && !bytes.contains(&0)).then_some(bytes))
}

/// Returns whether a letter controls a terminal, or changes the direction in which others are shown: a name with one
/// can look like another.
pub fn controls_display(letter: char) -> bool {
    letter.is_control() || matches!(letter, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Returns the mode as git writes it.
fn git_mode(meta: &crate::Meta) -> u32 {
    match meta.kind {
        Kind::Symlink => 0o120_000,
        _ if meta.mode & 0o100 != 0 => 0o100_755,
        _ => 0o100_644,
    }
}

/// Returns a path with the escapes of a patch, without quotation marks.
fn quoted(path: &Path) -> String {
    let mut text = String::new();
    for chunk in path.as_os_str().as_bytes().utf8_chunks() {
        for letter in chunk.valid().chars() {
            match letter {
                '\n' => text.push_str("\\n"),
                '\t' => text.push_str("\\t"),
                '"' | '\\' => text.extend(['\\', letter]),
                letter if controls_display(letter) => {
                    letter.to_string().bytes().for_each(|byte| text.push_str(&format!("\\{byte:03o}")));
                }
                letter => text.push(letter),
            }
        }
        chunk.invalid().iter().for_each(|byte| text.push_str(&format!("\\{byte:03o}")));
    }
    text
}

fn prefixed(prefix: &str, path: &str) -> String {
    if path.contains(['\\', '"']) { format!("\"{prefix}{path}\"") } else { format!("{prefix}{path}") }
}
