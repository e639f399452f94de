//! The modules that a guest needs, in the order of loading, unpacked.
//!
//! [`needed`] looks below a folder `lib/modules/<release>`: `modules.builtin` says what the kernel has already, the
//! files `*.ko`, `*.ko.xz`, `*.ko.zst` and `*.ko.gz` are the rest.

use std::{
    collections::{HashMap, HashSet},
    fs,
    path::{Path, PathBuf},
};

use super::{modinfo, unpack};
use crate::{Error, Kernel, Result};

/// A module, ready to be loaded.
#[derive(Debug)]
pub(crate) struct Module {
    /// Its name, with underscores.
    pub(crate) name: String,
    /// The file.
    pub(crate) path: PathBuf,
    /// The file's content, decompressed.
    pub(crate) image: Vec<u8>,
}

/// The modules named and all that they depend on, each after what it needs; built-in ones are left out.
///
/// Errors: a module is neither built in nor in the folder, or cannot be read.
pub(crate) fn needed(kernel: &Kernel, names: &[&str]) -> Result<Vec<Module>> {
    let Some(folder) = &kernel.modules else { return Ok(Vec::new()) };
    let mut search = Search {
        kernel,
        folder,
        built_in: built_in(folder),
        files: files(folder)?,
        seen: HashSet::new(),
        ordered: Vec::new(),
    };
    for name in names {
        search.add(name)?;
    }
    Ok(search.ordered)
}

struct Search<'a> {
    kernel: &'a Kernel,
    folder: &'a Path,
    built_in: HashSet<String>,
    files: HashMap<String, PathBuf>,
    seen: HashSet<String>,
    ordered: Vec<Module>,
}

impl Search<'_> {
    fn add(&mut self, name: &str) -> Result<()> {
        if self.built_in.contains(name) || !self.seen.insert(name.to_owned()) {
            return Ok(());
        }
        let path = self.files.get(name).cloned().ok_or_else(|| Error::NoModule {
            module: name.to_owned(),
            kernel: self.kernel.image.clone(),
            folder: self.folder.to_owned(),
        })?;
        let packed = fs::read(&path).map_err(Error::io(format!("cannot read module {path:?}")))?;
        let image = unpack::unpack(packed).map_err(Error::io(format!("cannot unpack module {path:?}")))?;
        for dependency in modinfo::depends(&image, name)? {
            self.add(&dependency)?;
        }
        self.ordered.push(Module { name: name.to_owned(), path, image });
        Ok(())
    }
}

/// The modules inside the kernel; none where the list is missing.
fn built_in(folder: &Path) -> HashSet<String> {
    let list = fs::read_to_string(folder.join("modules.builtin")).unwrap_or_default();
    list.lines().filter_map(|line| module_name(Path::new(line))).collect()
}

/// The module files below `folder`, by name.
fn files(folder: &Path) -> Result<HashMap<String, PathBuf>> {
    let mut files = HashMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).map_err(Error::io(format!("cannot read {folder:?}")))?;
        for entry in entries {
            let entry = entry.map_err(Error::io(format!("cannot read {folder:?}")))?;
            let path = entry.path();
            // `build` and `source` are links that lead out of the folder.
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push(path);
            } else if let Some(name) = module_name(&path) {
                files.insert(name, path);
            }
        }
    }
    Ok(files)
}

/// `…/virtio-rng.ko.xz` is the module `virtio_rng`.
fn module_name(path: &Path) -> Option<String> {
    let (name, kind) = path.file_name()?.to_str()?.split_once(".ko")?;
    matches!(kind, "" | ".xz" | ".zst" | ".gz").then(|| name.replace('-', "_"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_is_named_after_its_file_with_underscores() {
        assert_eq!(module_name(Path::new("kernel/x/virtio-rng.ko.xz")).as_deref(), Some("virtio_rng"));
        assert_eq!(module_name(Path::new("kernel/fs/fuse/fuse.ko")).as_deref(), Some("fuse"));
        assert_eq!(module_name(Path::new("modules.order")), None);
        assert_eq!(module_name(Path::new("x.ko.sig")), None);
    }

    #[test]
    fn a_kernel_without_a_folder_needs_no_modules() {
        let kernel = Kernel { image: "linux".into(), modules: None };
        assert!(needed(&kernel, &["virtiofs"]).unwrap().is_empty());
    }

    #[test]
    fn a_module_that_is_nowhere_is_named_in_the_error() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("modules.builtin"), "kernel/fs/fuse/fuse.ko\n").unwrap();
        let kernel = Kernel { image: "vmlinuz".into(), modules: Some(folder.path().into()) };

        assert!(needed(&kernel, &["fuse"]).unwrap().is_empty());
        let error = needed(&kernel, &["fuse", "virtiofs"]).unwrap_err();
        assert!(matches!(error, Error::NoModule { ref module, .. } if module == "virtiofs"), "{error}");
    }
}
