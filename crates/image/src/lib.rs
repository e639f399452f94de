//! Images of containers on disk, unpacked as directories that a guest can have as its root.
//!
//! [`Store::open`] takes a tar of a root file system, an OCI layout, or an archive of the OCI or of docker, and returns
//! the [`Unpacked`] directory with the image's [`Config`]. Nothing here fetches from a registry: skopeo and podman do
//! that, and what they write is read.
//!
//! An image is not trusted. [`unpack`] makes nothing outside of the directory, [`blobs`] opens regular files only, and
//! everything that an image can make long is bounded.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod blobs;
mod cleanup;
mod compression;
mod config;
mod error;
mod image;
mod lock;
mod root;
mod source;
mod space;
mod stoppable;
mod store;
mod tarball;
mod unpack;

pub use config::Config;
pub use error::{Error, Result};
pub use store::{Store, Unpacked};

/// Returns whether `path` is something that [`Store::open`] reads, rather than a directory that is a root itself.
pub fn is_image(path: &std::path::Path) -> bool {
    path.is_file()
        || path.join(image::LAYOUT_FILE).is_file() && path.join(image::INDEX_FILE).is_file()
        // What is refused with the next step, rather than taken for a root.
        || source::is_of_skopeo(path)
}

/// Follows the unpacking of an image.
pub trait Watch {
    /// Unpacking begins; there are `len_bytes` to read.
    fn begins(&self, len_bytes: u64);

    /// `done_bytes` of them have been read.
    fn advances(&self, done_bytes: u64);

    /// Another process has the lock `path`, because it unpacks the same image; this one waits for it.
    fn waits_for(&self, path: &std::path::Path);

    /// Returns whether to stop. It is asked again and again, and once it is true, it stays so.
    fn is_cancelled(&self) -> bool;
}
