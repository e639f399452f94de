//! Where the tables of groups are on a machine with files, for daemons and for whoever opens a table by its path.

extern crate std;

use std::{
    env,
    path::{Path, PathBuf},
};

/// The name of a group's table in the group's directory.
pub const TABLE_NAME: &str = "table";

/// Returns the directory of the group `name`: in `$XDG_RUNTIME_DIR/transom`, or in `/run/transom` without that
/// variable.
pub fn group_dir(name: &str) -> PathBuf {
    let given = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
    given.as_deref().unwrap_or(Path::new("/run")).join("transom").join(name)
}
