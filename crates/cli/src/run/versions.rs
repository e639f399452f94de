//! `transom run --kernel-with-versions`: a guest whose kernel reads the version table of a coherence group.

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
};

use transom_versions::location::{TABLE_NAME, group_dir};
use transom_vm::{CacheMode, Error, Result, Root, Share};

use super::Run;

impl Run {
    /// Gives every share the group's version table, if the guest's kernel is to read it.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no group, or if the guest cannot read its table.
    pub(super) fn apply_version_table(&self, root: &mut Root, shares: &mut [Share]) -> Result<()> {
        if !self.kernel_with_versions {
            return Ok(());
        }
        let Some(group) = &self.coherence_group else {
            return Err(Error::Usage(
                "--kernel-with-versions needs --coherence-group GROUP: without a group there is no version table"
                    .into(),
            ));
        };
        let table = table_of(group);
        let root = match root {
            Root::Host(share) => Some(share),
            Root::Minimal => None,
        };
        for share in root.into_iter().chain(shares) {
            // Validity is up to the table, so nothing should expire earlier.
            share.cache.get_or_insert(CacheMode::Always);
            share.version_table = Some(table.clone());
        }
        Ok(())
    }
}

/// Returns the table of a group as transomd finds it: by the group's name, or its directory.
fn table_of(group: &OsStr) -> PathBuf {
    match group.to_str() {
        Some(name) if !name.contains('/') => group_dir(name).join(TABLE_NAME),
        _ => Path::new(group).join(TABLE_NAME),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_a_name_or_a_directory() {
        assert!(table_of(OsStr::new("build")).ends_with("transom/build/table"));
        assert_eq!(table_of(OsStr::new("/srv/groups/a")), Path::new("/srv/groups/a/table"));
        assert_eq!(table_of(OsStr::new("./a")), Path::new("./a/table"));
    }
}
