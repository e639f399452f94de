//! Kernels: where they are, what is inside, and their modules.

mod image;
mod modinfo;
mod modules;
mod unpack;

use std::path::Path;

pub(crate) use image::unpacked;
pub(crate) use modules::{Module, needed};

use crate::{Error, Kernel, Result};

impl Kernel {
    /// The kernel `image` with the modules that belong to it.
    ///
    /// `…/boot/vmlinuz-<release>` has them in `…/lib/modules/<release>`; a file in `…/lib/modules/<release>/` has
    /// them beside it. Errors: the image is missing.
    pub fn at(image: &Path) -> Result<Self> {
        if !image.is_file() {
            return Err(Error::Missing {
                what: "the kernel",
                path: image.to_owned(),
                advice: "give --kernel the image of a kernel, /boot/vmlinuz-… for example, or leave it away".into(),
            });
        }
        Ok(Self { image: image.to_owned(), modules: modules_folder(image) })
    }
}

fn modules_folder(image: &Path) -> Option<std::path::PathBuf> {
    let folder = image.parent()?;
    if folder.join("modules.builtin").is_file() {
        return Some(folder.to_owned());
    }
    let release = image.file_name()?.to_str()?.split_once('-')?.1;
    let modules = folder.parent()?.join("lib/modules").join(release);
    // Distributions with a merged /usr have them there; an unpacked package of a newer Debian does.
    let merged = folder.parent()?.join("usr/lib/modules").join(release);
    [modules, merged].into_iter().find(|folder| folder.is_dir())
}
