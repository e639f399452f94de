//! Edits of a share by programs of the host, and as editors save.

use std::{
    fmt,
    fs::{self, File, OpenOptions, Permissions},
    io::{self, Write as _},
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::Command,
};

use transom_vm::packages::Prefix;

/// An edit.
pub(super) struct Edit {
    pub(super) name: &'static str,
    pub(super) make: fn(&Places<'_>) -> anyhow::Result<()>,
}

/// Where an edit happens.
pub(super) struct Places<'a> {
    pub(super) share: &'a Path,
    /// On the same file system, outside of the share.
    pub(super) folder: &'a Path,
    /// Packages of the guest, of which the host runs rsync.
    pub(super) prefix: &'a Prefix,
}

/// The machine lacks the program of an edit.
#[derive(Debug)]
pub(super) struct Missing;

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no such program")
    }
}

impl std::error::Error for Missing {}

/// All edits, in order.
pub(super) const EDITS: &[Edit] = &[
    Edit { name: "sed -i", make: |places| run(places.share, "sed -i s/line/LINE/ text") },
    Edit {
        name: "vim: a backup by rename, then a new file",
        make: |places| Ok(vim(&places.share.join("vim"), "saved by vim\n")?),
    },
    Edit {
        name: "vim: a backup by copy, then the same file",
        make: |places| Ok(vim_in_place(&places.share.join("in-place"), "saved by vim in place\n")?),
    },
    Edit {
        name: "VS Code: truncates, then writes",
        make: |places| Ok(vs_code(&places.share.join("code"), "saved by VS Code\n")?),
    },
    Edit {
        name: "git add, git commit",
        make: |places| git(places, "echo more >>tracked; git add . && git commit -qm more"),
    },
    Edit { name: "git checkout", make: |places| git(places, "git checkout -q other") },
    Edit { name: "git checkout back", make: |places| git(places, "git checkout -q -") },
    Edit {
        name: "rsync",
        make: |places| {
            let mut rsync = places.prefix.command("usr/bin/rsync")?;
            let status = rsync
                .args(["-a", "--delete"])
                .arg(places.folder.join("source/"))
                .arg(places.share.join("copy/"))
                .status()?;
            anyhow::ensure!(status.success(), "rsync: {status}");
            Ok(())
        },
    },
    Edit { name: "mv of a tree", make: |places| run(places.share, "mv tree elsewhere/moved") },
    Edit { name: "mv of a tree from outside", make: |places| run(places.folder, "mv tree share/arrived") },
    Edit {
        name: "an edit in a tree that was moved",
        make: |places| run(places.share, "echo new >>elsewhere/moved/deep/file"),
    },
    Edit {
        name: "chmod, touch and ln",
        make: |places| run(places.share, "chmod 600 text; touch copy/kept; ln text link; ln -s text symlink"),
    },
    Edit { name: "rm of a tree", make: |places| run(places.share, "rm -r elsewhere/moved") },
];

/// Makes the files that are edited.
pub(super) fn prepare(share: &Path, folder: &Path) -> anyhow::Result<()> {
    run(
        share,
        "for n in 1 2 3 4 5; do echo line $n; done >text; cp text vim; cp text in-place; cp text code
        mkdir -p tree/deep elsewhere copy; echo below >tree/deep/file; echo kept >copy/kept; echo old >copy/old",
    )?;
    run(
        folder,
        "mkdir -p source tree/deep; echo longer than kept >source/kept; echo new >source/new
        echo below >tree/deep/file",
    )?;
    let repository =
        "mkdir repo && cd repo && git init -q . && git config user.name x && git config user.email x@localhost
        for n in 1 2 3 4 5 6 7 8; do echo $n >file$n; done; echo tracked >tracked; git add . && git commit -qm first
        git checkout -q -b other; for n in 1 2 3; do echo other >file$n; done; git rm -q file4; echo 9 >file9; git add .
        git commit -qm other; git checkout -q -";
    match Command::new("git").arg("--version").output() {
        Err(_) => Ok(()),
        Ok(_) => run(share, repository),
    }
}

fn git(places: &Places<'_>, script: &str) -> anyhow::Result<()> {
    let repository = places.share.join("repo");
    if !repository.exists() {
        return Err(Missing.into());
    }
    run(&repository, script)
}

/// With `backupcopy=no`: tries whether the directory can be written, moves the file aside and writes a new one.
pub(super) fn vim(file: &Path, text: &str) -> io::Result<()> {
    let (backup, probe) = (file.with_extension("~"), file.with_file_name("4913"));
    drop(OpenOptions::new().write(true).create_new(true).open(&probe)?);
    fs::remove_file(&probe)?;
    fs::rename(file, &backup)?;
    let mut new = OpenOptions::new().write(true).create(true).truncate(false).open(file)?;
    new.write_all(text.as_bytes())?;
    new.sync_all()?;
    new.set_permissions(Permissions::from_mode(0o644))?;
    drop(new);
    fs::remove_file(&backup)
}

/// With `backupcopy=yes`: copies the file aside and writes it in place.
pub(super) fn vim_in_place(file: &Path, text: &str) -> io::Result<()> {
    let backup = file.with_extension("~");
    fs::copy(file, &backup)?;
    let mut same = OpenOptions::new().write(true).truncate(true).open(file)?;
    same.write_all(text.as_bytes())?;
    same.sync_all()?;
    drop(same);
    fs::remove_file(&backup)
}

pub(super) fn vs_code(file: &Path, text: &str) -> io::Result<()> {
    let mut file = File::options().read(true).write(true).open(file)?;
    file.set_len(0)?;
    file.write_all(text.as_bytes())?;
    file.sync_data()
}

fn run(dir: &Path, script: &str) -> anyhow::Result<()> {
    sh(dir, script).map(drop)
}

/// Runs a script and returns its output.
pub(super) fn sh(dir: &Path, script: &str) -> anyhow::Result<String> {
    let output = Command::new("sh").args(["-ec", script]).current_dir(dir).output()?;
    anyhow::ensure!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
