//! `transom overlays`.

use std::{path::Path, process::ExitCode};

use clap::Args;
use serde_json::{Value, json};
use transom_overlay::{Change, Error, Overlay, Sum, visit_all};

use super::{EXAMPLES, FAILED, Failure, end, print, summary};
use crate::tell::path_in_line;

/// List the directories that have an overlay, with what guests have changed
///
/// An overlay is there from `transom run --share DIR,overlay` until its changes are committed or discarded.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Overlays {
    /// Print a JSON array instead of lines
    #[arg(long)]
    json: bool,
}

impl Overlays {
    pub(crate) fn execute(self) -> ExitCode {
        end(self.list())
    }

    fn list(&self) -> Result<(), Failure> {
        let (mut entries, mut text) = (Vec::new(), String::new());
        let visited = visit_all(|directory, overlay| {
            let is_replaced = overlay.as_ref().is_ok_and(Overlay::is_replaced);
            let changes = overlay.and_then(|overlay| overlay.changes());
            if self.json {
                return entries.push(entry_json(directory, is_replaced, changes));
            }
            let state = match changes {
                Ok(changes) if is_replaced => format!("{}; the directory is another one now", summary(&changes)),
                Ok(changes) => summary(&changes),
                Err(Error::InUse(_)) => "in use".into(),
                Err(Error::Missing(_)) => "the directory is gone".into(),
                Err(error) => error.to_string(),
            };
            text.push_str(&format!("{}: {state}\n", path_in_line(directory)));
        });
        visited.map_err(|error| (error.to_string(), FAILED))?;
        if self.json {
            return print(&format!("{}\n", Value::from(entries)));
        }
        if text.is_empty() {
            text.push_str("no overlays\n");
        }
        print(&text)
    }
}

/// Returns an overlay as an object: with `in_use` or `error` in place of the numbers if it could not be compared.
fn entry_json(directory: &Path, is_replaced: bool, changes: transom_overlay::Result<Vec<Change>>) -> Value {
    let directory = directory.to_string_lossy();
    match changes {
        Ok(changes) => {
            let Sum { files, directories, bytes } = Sum::of(&changes);
            json!({
                "directory": directory,
                "files": files,
                "directories": directories,
                "bytes": bytes,
                "replaced": is_replaced,
            })
        }
        Err(Error::InUse(_)) => json!({ "directory": directory, "in_use": true }),
        Err(error) => json!({ "directory": directory, "error": error.to_string() }),
    }
}
