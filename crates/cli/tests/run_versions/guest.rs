//! Guests that take one shell command after the other.

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead, BufReader, Write},
    os::unix::fs::{DirEntryExt as _, MetadataExt as _, symlink},
    path::PathBuf,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::atomic::AtomicU64,
};

use tempfile::TempDir;
use transom_versions::Reader;

/// Well above the time of the longest test on a busy machine, so that only a run that hangs reaches it.
const LIMIT_S: &str = "1200";
/// The line that ends a command's output.
const END: &str = "-- end --";

/// A shared directory and the directory of a group.
pub(crate) struct Place {
    folder: TempDir,
    share_options: String,
}

impl Place {
    /// `share_options` are those of the share for `transom run`, each after a comma.
    pub(crate) fn new(share_options: &str) -> Self {
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        let share = folder.path().join("share");
        for directory in ["dir", "tree"] {
            fs::create_dir_all(share.join(directory)).unwrap();
        }
        fs::write(share.join("tree/file"), "below\n").unwrap();
        for file in ["data", "held", "log", "moded", "conf"] {
            fs::write(share.join(file), "first\n").unwrap();
        }
        symlink("first", share.join("sym")).unwrap();
        Self { folder, share_options: share_options.to_owned() }
    }

    /// The share for `transom run`.
    pub(crate) fn share(&self) -> String {
        format!("{}:/share{}", self.path("share").display(), self.share_options)
    }

    /// A directory whose name needs care.
    fn group(&self) -> String {
        self.path("a group").display().to_string()
    }

    /// The inodes of the share and of what is in it, two levels deep.
    pub(crate) fn inodes(&self) -> Vec<u64> {
        let share = self.path("share");
        let mut inodes = vec![fs::metadata(&share).unwrap().ino()];
        for directory in [share.clone(), share.join("dir"), share.join("tree")] {
            inodes.extend(fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().ino()));
        }
        inodes
    }

    /// The slots that inodes have in the group's version table.
    pub(crate) fn slots(&self, inodes: &[u64]) -> BTreeSet<u32> {
        let table = fs::read(self.path("a group/table")).unwrap();
        let words = table.chunks_exact(8).map(|word| AtomicU64::new(u64::from_le_bytes(word.try_into().unwrap())));
        let reader = Reader::new(words.collect::<Vec<_>>()).unwrap();
        inodes.iter().map(|&inode| reader.slot(inode).number()).collect()
    }

    /// A path beside the share.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

/// What the guests run in.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Vmm {
    Uml,
    Qemu,
}

impl Vmm {
    pub(crate) fn option(self) -> &'static str {
        match self {
            Self::Uml => "--vmm=uml",
            Self::Qemu => "--vmm=qemu",
        }
    }
}

/// A guest with a shell. Its processes end with this.
pub(crate) struct Guest {
    run: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Guest {
    /// Starts a guest in the place's group, with a kernel that reads its version table.
    pub(crate) fn start(vmm: Vmm, place: &Place, arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_transom"));
        command.args(["run", vmm.option(), "--kernel-with-versions", "--no-events", "--memory=256M"]);
        command.args(["--timeout", LIMIT_S]);
        command.args(["--share", &place.share(), "--coherence-group", &place.group()]).args(arguments);
        command.args(["--", "sh"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut run = command.spawn().unwrap();
        let stdin = run.stdin.take().unwrap();
        let stdout = BufReader::new(run.stdout.take().unwrap());
        let mut guest = Self { run, stdin, stdout };
        guest.ask("true");
        guest
    }

    /// Runs a command, and returns its output with spaces for line ends.
    pub(crate) fn ask(&mut self, command: &str) -> String {
        writeln!(self.stdin, "{command}; echo '{END}'").unwrap();
        let mut output = Vec::new();
        loop {
            let mut line = String::new();
            let len = self.stdout.read_line(&mut line).unwrap();
            assert_ne!(len, 0, "the guest ended during {command:?}, after {output:?}");
            match line.trim_end() {
                END => return output.join(" "),
                text => output.push(text.to_owned()),
            }
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // The daemon and the guest die with it.
        let _ = self.run.kill();
        let _ = self.run.wait();
    }
}
