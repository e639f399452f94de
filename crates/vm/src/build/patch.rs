//! The patch by which Linux reads version tables: a file of the project, which is under the kernel's own licence and
//! therefore not a part of any program.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use crate::packages::{Error, Result, checkout_of};

/// The file's name.
const NAME: &str = "fuse-version-table.patch";
/// Its directory in the project's sources, and below `share/transom` where the project is installed.
const FOLDER: &str = "linux";

/// Where the patch is, and what it is.
#[derive(Debug)]
pub(super) struct Patch {
    pub(super) path: PathBuf,
    pub(super) text: Vec<u8>,
}

impl Patch {
    /// Finds the patch beside this program's installation, or in the project's sources.
    ///
    /// # Errors
    ///
    /// Returns an error that names the places where it is not.
    pub(super) fn find() -> Result<Self> {
        let program = env::current_exe().and_then(fs::canonicalize).ok();
        let current = env::current_dir().ok();
        let places = places(program.as_deref(), current.as_deref());
        let Some(path) = places.iter().find(|path| path.is_file()) else { return Err(Error::NoPatch { places }) };
        let text = fs::read(path).map_err(Error::io(format!("cannot read {path:?}")))?;
        Ok(Self { path: path.clone(), text })
    }
}

fn places(program: Option<&Path>, current: Option<&Path>) -> Vec<PathBuf> {
    let prefix = program.and_then(|program| Some(program.parent()?.parent()?.join("share/transom")));
    let sources = [program, current].map(|path| path.and_then(checkout_of).map(Path::to_owned));
    let mut places: Vec<_> =
        prefix.into_iter().chain(sources.into_iter().flatten()).map(|dir| dir.join(FOLDER).join(NAME)).collect();
    places.dedup();
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_patch_is_beside_the_installation_and_in_the_sources() {
        let found = Patch::find().unwrap();
        assert!(found.path.ends_with("linux/fuse-version-table.patch"), "{:?}", found.path);
        let installed = places(Some(Path::new("/usr/bin/transom")), None);
        assert_eq!(installed, [Path::new("/usr/share/transom/linux/fuse-version-table.patch")]);
    }
}
