//! Kernel images and their modules.

mod image;
mod modinfo;
mod modules;
mod unpack;

use std::path::Path;

pub(crate) use image::unpacked;
pub(crate) use modules::{Module, needed};

use crate::{Error, Kernel, Result};

impl Kernel {
    /// Returns the kernel `image` with its modules.
    ///
    /// The modules of `…/boot/vmlinuz-<release>` are in `…/lib/modules/<release>`; those of an image in
    /// `…/lib/modules/<release>/` are beside it.
    ///
    /// # Errors
    ///
    /// Returns an error if the image does not exist, or is something else.
    pub fn at(image: &Path) -> Result<Self> {
        if !image.is_file() {
            return Err(Error::Missing {
                what: "the kernel",
                path: image.to_owned(),
                advice: "pass a kernel image such as /boot/vmlinuz-… to --kernel, or omit --kernel".into(),
            });
        }
        if !image::is_kernel(image).map_err(Error::io(format!("cannot read kernel {image:?}")))? {
            return Err(Error::Usage(format!(
                "{image:?} is not a Linux kernel: expected a bzImage such as /boot/vmlinuz-…, or an ELF file such as \
                 vmlinux"
            )));
        }
        Ok(Self { image: image.to_owned(), modules: modules_folder(image) })
    }

    /// Checks that the kernel reads version tables. One that does not would cache forever. `unpacked` is its image
    /// without compression, and `words` are words that the patch adds to it.
    pub(crate) fn check_reads_versions(&self, unpacked: &Path, words: &str) -> Result<()> {
        let image = std::fs::read(unpacked).map_err(Error::io(format!("cannot read kernel {unpacked:?}")))?;
        if image.windows(words.len()).any(|bytes| bytes == words.as_bytes()) {
            return Ok(());
        }
        Err(Error::Usage(format!(
            "{:?} does not read version tables: build it with the patch in the project's directory linux/ and \
             CONFIG_FUSE_VERSIONS=y, or leave --kernel out",
            self.image
        )))
    }
}

fn modules_folder(image: &Path) -> Option<std::path::PathBuf> {
    let folder = image.parent()?;
    if folder.join("modules.builtin").is_file() {
        return Some(folder.to_owned());
    }
    let release = image.file_name()?.to_str()?.split_once('-')?.1;
    let modules = folder.parent()?.join("lib/modules").join(release);
    // Used by distributions with a merged /usr, and by packages of newer Debian releases.
    let merged = folder.parent()?.join("usr/lib/modules").join(release);
    [modules, merged].into_iter().find(|folder| folder.is_dir())
}
