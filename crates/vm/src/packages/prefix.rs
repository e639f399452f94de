//! [`Prefix`]: a directory with the files of unpacked packages, as below `/`, from which programs can be run.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use super::{Error, Report, Result};

/// The list of packages; written last, so that a directory without it is incomplete.
const LIST: &str = "packages";
const ROOT: &str = "root";
/// Directories of libraries below the root.
const LIBRARIES: [&str; 2] = ["usr/lib", "lib"];
/// Directories of the dynamic loader below the root.
const LOADERS: [&str; 4] = ["lib64", "usr/lib64", "lib", "usr/lib"];

/// A directory with unpacked packages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prefix {
    folder: PathBuf,
    /// What is inside: `name=version`.
    pub(super) files: Vec<String>,
}

impl Prefix {
    /// Returns the prefix in `folder`, if it is complete.
    pub(super) fn existing(folder: &Path) -> Result<Option<Self>> {
        let list = folder.join(LIST);
        match fs::read_to_string(&list) {
            Ok(text) => Ok(Some(Self { folder: folder.to_owned(), files: text.lines().map(str::to_owned).collect() })),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::io(format!("cannot read {list:?}"))(error)),
        }
    }

    /// Unpacks `archives`, removes them, and replaces `folder` with the result. The caller must hold the lock of the
    /// cache.
    pub(super) fn unpack(folder: &Path, archives: &[(String, PathBuf)], report: &dyn Report) -> Result<Self> {
        let (new, old) = (beside(folder, "new"), beside(folder, "old"));
        for left_over in [&new, &old] {
            remove(left_over)?;
        }
        let root = new.join(ROOT);
        fs::create_dir_all(&root).map_err(Error::io(format!("cannot create {root:?}")))?;
        for (number, (_, archive)) in archives.iter().enumerate() {
            report.advance(100.0 * number as f32 / archives.len() as f32);
            unpack_one(archive, &root)?;
        }
        let files: Vec<String> = archives.iter().map(|archive| archive.0.clone()).collect();
        let list = new.join(LIST);
        fs::write(&list, files.join("\n") + "\n").map_err(Error::io(format!("cannot write {list:?}")))?;

        let doing = || format!("cannot replace {folder:?}");
        if folder.exists() {
            fs::rename(folder, &old).map_err(Error::io(doing()))?;
        }
        fs::rename(&new, folder).map_err(Error::io(doing()))?;
        remove(&old)?;
        for (_, archive) in archives {
            let _ = fs::remove_file(archive);
        }
        Ok(Self { folder: folder.to_owned(), files })
    }

    /// Returns the directory that represents `/`.
    pub fn root(&self) -> PathBuf {
        self.folder.join(ROOT)
    }

    /// Returns `name=version` of each package.
    pub fn packages(&self) -> &[String] {
        &self.files
    }

    /// Returns the version of the first package whose name begins with `beginning`.
    pub fn version_of(&self, beginning: &str) -> Option<&str> {
        self.files.iter().find(|file| file.starts_with(beginning))?.split_once('=').map(|pair| pair.1)
    }

    /// Returns the files in the directory `folder` below the root whose names begin with `beginning`.
    pub fn find(&self, folder: &str, beginning: &str) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.root().join(folder)).into_iter().flatten().flatten();
        let mut found: Vec<_> = entries
            .filter(|entry| entry.file_name().to_string_lossy().starts_with(beginning))
            .map(|e| e.path())
            .collect();
        found.sort();
        found
    }

    /// Returns a command that runs `program`, a path below the root, with the libraries of the prefix.
    ///
    /// The prefix must have been fetched with dependencies: its own loader and C library are used. Programs that it
    /// starts are the machine's.
    ///
    /// # Errors
    ///
    /// Returns an error if the program or the loader does not exist.
    pub fn command(&self, program: &str) -> Result<Command> {
        let words = self.words(program)?;
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        Ok(command)
    }

    /// Writes to `path` a script that runs `program` as [`Self::command`] does.
    ///
    /// A script with the same contents is not written again, because builds depend on its modification time.
    pub fn write_script(&self, program: &str, path: &Path) -> Result<()> {
        let quote = |word: &String| format!("'{}'", word.replace('\'', r"'\''"));
        let line = self.words(program)?.iter().map(quote).collect::<Vec<_>>().join(" ");
        let text = format!("#!/bin/sh\nexec {line} \"$@\"\n");
        if fs::read_to_string(path).is_ok_and(|there| there == text) {
            return Ok(());
        }
        // Renamed into place, because another run may be starting or writing the script.
        let new = beside(path, &format!("new-{}", std::process::id()));
        fs::write(&new, text)
            .and_then(|()| fs::set_permissions(&new, fs::Permissions::from_mode(0o755)))
            .and_then(|()| fs::rename(&new, path))
            .map_err(Error::io(format!("cannot write {path:?}")))
    }

    /// Returns the loader, its options and the program.
    fn words(&self, program: &str) -> Result<Vec<String>> {
        let path = self.root().join(program);
        let loader = LOADERS.iter().find_map(|folder| self.find(folder, "ld-linux").into_iter().next());
        let (true, Some(loader)) = (path.is_file(), loader) else {
            return Err(Error::Unexpected(format!(
                "{:?} has no {program}, or no loader for it; fetch it with its dependencies",
                self.folder
            )));
        };
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let libraries = self.libraries().iter().map(|path| text(path)).collect::<Vec<_>>().join(":");
        Ok(vec![text(&loader), "--library-path".into(), libraries, "--argv0".into(), text(&path), text(&path)])
    }

    /// Returns the directories with libraries, including private ones of packages one level deeper.
    pub fn libraries(&self) -> Vec<PathBuf> {
        let folders = |dir: &Path| -> Vec<PathBuf> {
            let entries = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
            let mut found: Vec<_> = entries.filter(|path| path.is_dir() && !path.is_symlink()).collect();
            found.sort();
            found
        };
        let mut found = Vec::new();
        for top in LIBRARIES.map(|library| self.root().join(library)) {
            for kind in folders(&top).into_iter().filter(|path| path.to_string_lossy().contains("-linux-gnu")) {
                found.push(kind.clone());
                found.extend(folders(&kind));
            }
        }
        found
    }
}

fn unpack_one(archive: &Path, root: &Path) -> Result<()> {
    let mut command = Command::new("dpkg-deb");
    command.arg("--extract").arg(archive).arg(root).stdin(Stdio::null()).stdout(Stdio::null());
    let output = command.output().map_err(|source| Error::NoApt { program: "dpkg-deb", source })?;
    if output.status.success() {
        return Ok(());
    }
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    if words.contains("No space left on device") {
        return Err(Error::DiskFull { dir: root.to_owned(), output: words });
    }
    Err(Error::Failed { doing: format!("unpacking {archive:?}"), status: output.status.to_string(), output: words })
}

/// Returns `folder` with a suffix.
fn beside(folder: &Path, ending: &str) -> PathBuf {
    let mut name = folder.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{ending}"));
    folder.with_file_name(name)
}

fn remove(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::io(format!("cannot remove {folder:?}"))(error))
        }
        _ => Ok(()),
    }
}
