//! What random programs do in a guest with an overlay that its kernel mounts is listed exactly, and committed as it is:
//! the same programs run on a copy of the directory on the host.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::MetadataExt as _,
    path::Path,
    process::{Command, Stdio},
    time::{SystemTime, UNIX_EPOCH},
};

/// Kind and mode, and content.
type Tree = BTreeMap<String, (u32, Vec<u8>)>;

/// Numbers that follow from a seed (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    fn name(&mut self) -> String {
        let letters: Vec<_> = (0..=self.below(3)).map(|_| ["a", "b", "c"][self.below(3) as usize]).collect();
        letters.join("/")
    }

    /// A line of a shell script, which may fail.
    fn act(&mut self) -> String {
        let (name, other, number) = (self.name(), self.name(), self.below(1000));
        match self.below(9) {
            0 | 1 => format!("echo {number} > {name}"),
            2 => format!("echo {number} >> {name}"),
            3 => format!("mkdir -p {name}"),
            4 => format!("rm -rf {name}"),
            5 | 6 => format!("mv {name} {other}"),
            7 => format!("ln -s /nowhere/{number} {name}"),
            _ => format!("test -L {name} || chmod 7{:02o} {name}", number % 0o100),
        }
    }

    fn program(&mut self) -> String {
        let acts: Vec<_> = (0..30).map(|_| self.act()).collect();
        format!("umask 022; exec 2>/dev/null\n{}\ntrue", acts.join("\n"))
    }
}

fn tree(root: &Path) -> Tree {
    let mut tree = Tree::new();
    let mut left = vec![root.to_owned()];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let meta = fs::symlink_metadata(&path).unwrap();
            let content = match meta.file_type() {
                kind if kind.is_symlink() => fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes(),
                kind if kind.is_file() => fs::read(&path).unwrap(),
                _ => Vec::new(),
            };
            let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            tree.insert(name, (meta.mode(), content));
            if meta.is_dir() {
                left.push(path);
            }
        }
    }
    tree
}

fn compared(before: &Tree, after: &Tree) -> BTreeMap<String, &'static str> {
    let mut changes = BTreeMap::new();
    for (name, (mode, content)) in after {
        let change = match before.get(name) {
            None => "added",
            Some((old, of_old)) if (old >> 12, of_old) != (mode >> 12, content) => "changed",
            Some((old, _)) if old != mode => "mode",
            Some(_) => continue,
        };
        changes.insert(name.clone(), change);
    }
    changes.extend(before.keys().filter(|name| !after.contains_key(*name)).map(|name| (name.clone(), "removed")));
    changes
}

#[test]
#[ignore = "a minute or more: a machine for each program"]
fn what_programs_change_is_listed_and_committed() {
    if !rustix::process::geteuid().is_root() || !Path::new("/usr/bin/qemu-system-x86_64").is_file() {
        return eprintln!("SKIPPED: what_programs_change_is_listed_and_committed: needs root and QEMU");
    }
    let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64 | 1);
    let mut random = Random(seed);
    for round in 0..6 {
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        let [shared, copy] = ["d", "copy"].map(|name| folder.path().join(name));
        fs::create_dir(&copy).unwrap();
        let here = |program: &str| Command::new("sh").args(["-c", program]).current_dir(&copy).status().unwrap();
        here(&random.program());
        assert!(Command::new("cp").arg("-a").args([&copy, &shared]).status().unwrap().success());
        let before = tree(&shared);
        let transom = |words: &[&str]| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_transom"));
            command.args(words).env("XDG_STATE_HOME", folder.path().join("state")).stdin(Stdio::null());
            let output = command.output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8(output.stdout).unwrap()
        };
        let directory = shared.to_str().unwrap();
        let share = format!("{directory}:/share,overlay=guest");
        // The second machine goes on with what the first has left.
        for _ in 0..2 {
            let program = random.program();
            here(&program);
            transom(&["run", "--timeout", "400", "--share", &share, "--", "sh", "-c", &program]);
        }
        assert_eq!(tree(&shared), before, "SEED={seed}, round {round}");
        let expected = tree(&copy);
        let listed: serde_json::Value = serde_json::from_str(&transom(&["diff", "--json", directory])).unwrap();
        let listed: BTreeMap<_, _> = listed["changes"]
            .as_array()
            .unwrap()
            .iter()
            .map(|change| (change["path"].as_str().unwrap().to_owned(), change["change"].as_str().unwrap()))
            .collect();
        assert_eq!(listed, compared(&before, &expected), "SEED={seed}, round {round}");
        transom(&["commit", directory]);
        assert_eq!(tree(&shared), expected, "SEED={seed}, round {round}");
    }
}
