//! The changes to compare: each acts on a directory of its own, on the host and on a local file system of the guest.

use std::{
    fs::{self, File, OpenOptions, Permissions},
    io::{self, Write},
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
};

use rustix::fs::{CWD, FileType, Mode, mknodat};

/// A change of files.
pub(crate) struct Row {
    /// The directory's name.
    pub(crate) name: &'static str,
    /// Makes what the guest knows before the change.
    pub(crate) prepare: fn(&Path) -> io::Result<()>,
    /// Names of which the guest knows nothing but the directory, made by `prepare`.
    pub(crate) unseen: &'static [&'static str],
    /// Names with a watch of their own.
    pub(crate) watched: &'static [&'static str],
    /// Names whose changes of data do not arrive, because they are gone by then.
    pub(crate) fleeting: &'static [&'static str],
    /// The change.
    pub(crate) act: fn(&Path) -> io::Result<()>,
}

/// A file that is made last in each row: everything before it has arrived when it does.
pub(crate) const END: &str = "end";

fn nothing(_: &Path) -> io::Result<()> {
    Ok(())
}

fn one_file(dir: &Path) -> io::Result<()> {
    fs::write(dir.join("file"), "before")
}

fn two_files(dir: &Path) -> io::Result<()> {
    fs::write(dir.join("a"), "one")?;
    fs::write(dir.join("b"), "other")
}

fn tree(dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir.join("from/deep"))?;
    fs::create_dir(dir.join("to"))?;
    fs::write(dir.join("from/deep/file"), "below")
}

const PLAIN: Row = Row { name: "", prepare: nothing, unseen: &[], watched: &[], fleeting: &[], act: nothing };

/// All rows.
pub(crate) const ROWS: &[Row] = &[
    Row {
        name: "delete",
        prepare: one_file,
        watched: &["file"],
        act: |dir| fs::remove_file(dir.join("file")),
        ..PLAIN
    },
    Row {
        name: "delete-unseen",
        prepare: one_file,
        unseen: &["file"],
        act: |dir| fs::remove_file(dir.join("file")),
        ..PLAIN
    },
    Row {
        name: "delete-link",
        prepare: |dir| one_file(dir).and_then(|()| fs::hard_link(dir.join("file"), dir.join("link"))),
        watched: &["link"],
        act: |dir| fs::remove_file(dir.join("file")),
        ..PLAIN
    },
    Row {
        name: "rmdir",
        prepare: |dir| fs::create_dir(dir.join("sub")),
        watched: &["sub"],
        act: |dir| fs::remove_dir(dir.join("sub")),
        ..PLAIN
    },
    Row { name: "remove-tree", prepare: tree, act: |dir| fs::remove_dir_all(dir.join("from")), ..PLAIN },
    Row {
        name: "create",
        act: |dir| {
            File::options().read(true).write(true).create_new(true).open(dir.join("file"))?;
            fs::create_dir(dir.join("sub"))?;
            symlink("target", dir.join("link"))?;
            Ok(mknodat(CWD, dir.join("fifo"), FileType::Fifo, Mode::RUSR, 0)?)
        },
        ..PLAIN
    },
    Row { name: "create-data", act: |dir| fs::write(dir.join("file"), "data"), ..PLAIN },
    Row {
        name: "write-same-size",
        prepare: one_file,
        watched: &["file"],
        act: |dir| OpenOptions::new().write(true).open(dir.join("file"))?.write_all(b"after!"),
        ..PLAIN
    },
    Row {
        name: "write-unseen",
        prepare: one_file,
        unseen: &["file"],
        act: |dir| OpenOptions::new().append(true).open(dir.join("file"))?.write_all(b" and more"),
        ..PLAIN
    },
    Row { name: "truncate", prepare: one_file, act: |dir| File::create(dir.join("file")).map(drop), ..PLAIN },
    Row {
        name: "mode",
        prepare: one_file,
        watched: &["file"],
        act: |dir| fs::set_permissions(dir.join("file"), Permissions::from_mode(0o640)),
        ..PLAIN
    },
    Row {
        name: "rename",
        prepare: one_file,
        watched: &["file"],
        act: |dir| fs::rename(dir.join("file"), dir.join("new")),
        ..PLAIN
    },
    Row {
        name: "rename-unseen",
        prepare: one_file,
        unseen: &["file"],
        act: |dir| fs::rename(dir.join("file"), dir.join("new")),
        ..PLAIN
    },
    Row {
        name: "rename-over",
        prepare: two_files,
        watched: &["a", "b"],
        act: |dir| fs::rename(dir.join("a"), dir.join("b")),
        ..PLAIN
    },
    Row {
        name: "rename-tree",
        prepare: tree,
        watched: &["from", "from/deep/file"],
        act: |dir| fs::rename(dir.join("from"), dir.join("to/there")),
        ..PLAIN
    },
    Row {
        name: "save",
        prepare: one_file,
        watched: &["file"],
        fleeting: &[".file.tmp"],
        act: |dir| {
            fs::write(dir.join(".file.tmp"), "an editor's save")?;
            fs::rename(dir.join(".file.tmp"), dir.join("file"))
        },
        ..PLAIN
    },
    Row {
        // As git does: each file that differs is removed and made anew, and so are directories.
        name: "checkout",
        prepare: |dir| tree(dir).and_then(|()| two_files(dir)),
        watched: &["from/deep/file"],
        act: |dir| {
            for name in ["a", "b", "from/deep/file"] {
                fs::remove_file(dir.join(name))?;
                let mut file = File::options().write(true).create_new(true).open(dir.join(name))?;
                file.write_all(b"of another branch")?;
            }
            fs::remove_dir(dir.join("to"))?;
            fs::create_dir(dir.join("new"))?;
            fs::write(dir.join("new/file"), "of another branch")
        },
        ..PLAIN
    },
    Row {
        name: "come-and-go",
        fleeting: &["short"],
        act: |dir| {
            fs::write(dir.join("short"), "lived")?;
            fs::remove_file(dir.join("short"))
        },
        ..PLAIN
    },
];
