//! Images at random, most of them broken or hostile: whatever they are, nothing outside of the store changes, an error
//! leaves nothing in it, and memory stays bounded.
//!
//! `TRANSOM_IMAGE_CASES=N` runs N cases instead of the usual number, `TRANSOM_IMAGE_SEED=N` begins with another one. A
//! failure names the seed that repeats it as the only case.

mod common;

use std::{
    env, fs,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::{Path, PathBuf},
};

use common::{Quiet, gzip, sha256, zstd};
use rustix::process::{Resource, Rlimit, setrlimit};
use serde_json::{Value, json};
use tempfile::TempDir;
use transom_image::{Error, Store};

/// Cases in a usual run, which takes some seconds.
const CASES: u64 = 1500;
/// Memory of the whole process; what archives and manifests claim is far more.
const MEMORY_BYTES: u64 = 512 << 20;

/// Numbers at random, the same for the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let mixed = (self.0 ^ (self.0 >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 33) as usize % end
    }

    fn is_one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}

/// Makes images; `outside` is a directory that they try to reach.
struct Maker<'a> {
    random: Random,
    outside: &'a str,
}

impl Maker<'_> {
    /// Returns a path of a few names, among them what leads elsewhere.
    fn path(&mut self) -> Vec<u8> {
        const NAMES: [&[u8]; 18] = [
            b"a",
            b"b",
            b"c",
            b"a",
            b"b",
            b"link",
            b"link",
            b"secret",
            b"..",
            b".",
            b"",
            b"\xff\xfe",
            b"\x1b[2J",
            b".wh.a",
            b".wh.secret",
            b".wh..wh..opq",
            b".wh...",
            b".wh.",
        ];
        match self.random.below(24) {
            0 => [self.outside.as_bytes(), b"/secret"].concat(),
            1 => [b"../../../../../../../..", self.outside.as_bytes(), b"/new"].concat(),
            2 => b"deep/".repeat(self.random.below(300)),
            3 => vec![b'x'; 1 + self.random.below(300)],
            4 => b"/".to_vec(),
            _ => {
                let names: Vec<&[u8]> = (0..=self.random.below(4)).map(|_| *self.random.pick(&NAMES)).collect();
                names.join(&b'/')
            }
        }
    }

    fn entry(&mut self, tar: &mut Vec<u8>) {
        const KINDS: [u8; 20] = *b"0000000555222111x34L";
        let (path, target) = (self.path(), self.path());
        let kind = match self.random.below(40) {
            0 => self.random.below(256) as u8,
            1 => *self.random.pick(b"6KgSD7"),
            _ => *self.random.pick(&KINDS),
        };
        let content = match kind {
            b'x' => {
                let key = *self.random.pick(&["path", "linkpath", "uid", "mtime", "size", "GNU.sparse.map", "comment"]);
                let value = if self.random.is_one_in(2) { self.path() } else { b"123456789012345678901".to_vec() };
                let len = key.len() + value.len() + 3 + self.random.below(4);
                [format!("{len} {key}=").into_bytes(), value, b"\n".to_vec()].concat()
            }
            b'L' | b'K' => self.path(),
            b'0' => vec![b'c'; self.random.below(2000)],
            _ => Vec::new(),
        };
        let len = if self.random.is_one_in(60) { self.random.below(1 << 40) } else { content.len() };
        tar.extend(header(&path, kind, &target, len as u64));
        tar.extend(&content);
        tar.resize(tar.len().next_multiple_of(512), 0);
    }

    fn tar(&mut self) -> Vec<u8> {
        let mut tar = Vec::new();
        // What is below it must not be outside.
        match self.random.below(3) {
            0 => tar.extend(header(b"link", b'2', self.outside.as_bytes(), 0)),
            1 => tar.extend(header(b"link", b'2', format!("../../../../../..{}", self.outside).as_bytes(), 0)),
            _ => {}
        }
        if self.random.is_one_in(4) {
            // Where the link leads to in the image.
            tar.extend(header(format!("{}/", &self.outside[1..]).as_bytes(), b'5', b"", 0));
        }
        for _ in 0..self.random.below(30) {
            self.entry(&mut tar);
        }
        tar.resize(tar.len() + 1024, 0);
        self.damaged(tar, 8)
    }

    /// Changes bytes, or cuts some off, once in a number of times.
    fn damaged(&mut self, mut bytes: Vec<u8>, seldom: usize) -> Vec<u8> {
        if !self.random.is_one_in(seldom) || bytes.is_empty() {
            return bytes;
        }
        for _ in 0..=self.random.below(4) {
            let at = self.random.below(bytes.len());
            bytes[at] ^= 1 << self.random.below(8);
        }
        if self.random.is_one_in(2) {
            bytes.truncate(self.random.below(bytes.len() + 1));
        }
        bytes
    }

    fn compressed(&mut self, bytes: Vec<u8>) -> Vec<u8> {
        let bytes = match self.random.below(3) {
            0 => gzip(&bytes),
            1 => zstd(&bytes),
            _ => bytes,
        };
        self.damaged(bytes, 10)
    }

    /// Returns `json` with another value somewhere in it.
    fn replaced(&mut self, json: Value) -> Value {
        let is_here = self.random.is_one_in(3);
        match json {
            Value::Array(mut items) if !items.is_empty() && !is_here => {
                let number = self.random.below(items.len());
                items[number] = self.replaced(items[number].take());
                Value::Array(items)
            }
            Value::Object(mut fields) if !fields.is_empty() && !is_here => {
                let number = self.random.below(fields.len());
                let value = fields.values_mut().nth(number).unwrap();
                *value = self.replaced(value.take());
                Value::Object(fields)
            }
            value => match self.random.below(8) {
                0 => Value::Null,
                1 => json!(u64::MAX),
                2 => json!("../".repeat(9) + self.outside + "/secret"),
                3 => json!(format!("sha256:{}", "../".repeat(21) + "x")),
                4 => json!(vec![value; 2000]),
                5 => json!("\u{1b}]0;\u{7}\n"),
                6 => json!([[[value]]]),
                _ => json!({ "digest": value, "mediaType": "application/vnd.oci.image.index.v1+json" }),
            },
        }
    }

    /// Returns a text of `json`, spoiled once in a number of times.
    fn spoiled(&mut self, json: Value) -> Vec<u8> {
        let json = if self.random.is_one_in(6) { self.replaced(json) } else { json };
        let text = json.to_string();
        match self.random.below(60) {
            0 => "[".repeat(200_000).into_bytes(),
            1 => (" ".repeat(5 << 20) + &text).into_bytes(),
            _ => self.damaged(text.into_bytes(), 20),
        }
    }

    /// Writes an image in one of the forms to `dir`, and returns where.
    fn image(&mut self, dir: &Path) -> PathBuf {
        let at = dir.join("image");
        let layers: Vec<_> = (0..=self.random.below(3)).map(|_| self.tar()).collect();
        match self.random.below(3) {
            0 => {
                let tar = self.compressed(layers[0].clone());
                fs::write(&at, tar).unwrap();
                at
            }
            1 => {
                let mut files: Vec<(String, Vec<u8>)> = layers
                    .iter()
                    .enumerate()
                    .map(|(number, layer)| (format!("{number}/layer.tar"), layer.clone()))
                    .collect();
                let names: Vec<_> = files.iter().map(|(name, _)| name.clone()).collect();
                files.push(("config.json".into(), self.configuration(&layers)));
                let manifest = json!([{ "Config": "config.json", "RepoTags": ["a:b"], "Layers": names }]);
                files.push(("manifest.json".into(), self.spoiled(manifest)));
                let mut tar = Vec::new();
                for (name, content) in &files {
                    tar.extend(header(name.as_bytes(), b'0', b"", content.len() as u64));
                    tar.extend(content);
                    tar.resize(tar.len().next_multiple_of(512), 0);
                }
                tar.resize(tar.len() + 1024, 0);
                let tar = self.damaged(tar, 10);
                let tar = self.compressed(tar);
                fs::write(&at, tar).unwrap();
                at
            }
            _ => {
                self.layout(&at, &layers);
                at
            }
        }
    }

    fn configuration(&mut self, layers: &[Vec<u8>]) -> Vec<u8> {
        let digests: Vec<_> = layers.iter().map(|layer| format!("sha256:{}", sha256(layer))).collect();
        let architecture = common::this_architecture();
        let user = json!({ "User": "me", "Env": ["A=b"], "Cmd": null });
        self.spoiled(
            json!({ "architecture": architecture, "os": "linux", "rootfs": { "diff_ids": digests }, "config": user }),
        )
    }

    fn layout(&mut self, at: &Path, layers: &[Vec<u8>]) {
        fs::create_dir_all(at.join("blobs/sha256")).unwrap();
        let add = |bytes: &[u8]| {
            fs::write(at.join("blobs/sha256").join(sha256(bytes)), bytes).unwrap();
            json!({ "digest": format!("sha256:{}", sha256(bytes)), "size": bytes.len() })
        };
        let configuration = self.configuration(layers);
        let blobs: Vec<_> = layers.iter().map(|layer| add(&self.compressed(layer.clone()))).collect();
        let manifest = self.spoiled(json!({ "config": add(&configuration), "layers": blobs }));
        let mut descriptor = add(&manifest);
        for _ in 0..self.random.below(7) {
            let index = self.spoiled(json!({ "manifests": [descriptor] }));
            descriptor = add(&index);
            descriptor["mediaType"] = json!("application/vnd.oci.image.index.v1+json");
        }
        fs::write(at.join("index.json"), self.spoiled(json!({ "manifests": [descriptor] }))).unwrap();
        fs::write(at.join("oci-layout"), "{}").unwrap();
    }
}

/// Returns the header of an entry; names that are too long are cut off.
fn header(path: &[u8], kind: u8, target: &[u8], len: u64) -> [u8; 512] {
    let mut header = [0; 512];
    let mut put = |at: usize, bytes: &[u8], len_max: usize| {
        let len = bytes.len().min(len_max);
        header[at..at + len].copy_from_slice(&bytes[..len]);
    };
    put(0, path, 100);
    put(100, b"0000644", 7);
    put(108, b"0000000", 7);
    put(116, b"0000000", 7);
    put(124, format!("{len:011o}").as_bytes(), 12);
    put(136, b"00000000000", 11);
    put(148, b"        ", 8);
    put(156, &[kind], 1);
    put(157, target, 100);
    put(257, b"ustar\x0000", 8);
    let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
    header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    header
}

/// Checks what is in an unpacked root.
fn check(dir: &Path, depth: usize) {
    // Twice what a path may have: it can begin with a link.
    assert!(depth <= 513, "{dir:?}");
    for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
        let kind = entry.file_type().unwrap();
        assert!(!kind.is_char_device() && !kind.is_block_device() && !kind.is_socket(), "{entry:?}");
        if kind.is_dir() {
            check(&entry.path(), depth + 1);
        }
    }
}

fn state(dir: &Path) -> (Vec<u8>, u32, u64, i64, usize) {
    let (secret, above) = (dir.join("secret"), fs::metadata(dir).unwrap());
    let meta = fs::metadata(&secret).unwrap();
    (fs::read(secret).unwrap(), meta.mode(), meta.nlink(), above.mtime_nsec(), fs::read_dir(dir).unwrap().count())
}

/// A folder in memory, if there is such a file system: every image that is unpacked is written out to the disk.
fn folder() -> TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory).unwrap() } else { tempfile::tempdir().unwrap() }
}

#[test]
fn images_at_random_change_nothing_outside_of_the_store_and_leave_nothing_when_they_are_refused() {
    let limit = Rlimit { current: Some(MEMORY_BYTES), maximum: None };
    setrlimit(Resource::Data, limit).unwrap();
    let number = |name: &str| env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let cases = number("TRANSOM_IMAGE_CASES").unwrap_or(CASES);
    let first = number("TRANSOM_IMAGE_SEED").unwrap_or(1);
    let folder = folder();
    let outside = folder.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("secret"), "secret").unwrap();
    let before = state(&outside);
    let (mut opened, mut files) = (0, 0);
    for seed in first..first + cases {
        let dir = folder.path().join("case");
        fs::create_dir(&dir).unwrap();
        let mut maker = Maker { random: Random(seed), outside: outside.to_str().unwrap() };
        let image = maker.image(&dir);
        let store = dir.join("store");
        match Store::at(&store).open(&image, None, &Quiet) {
            Ok(unpacked) => {
                opened += 1;
                files += fs::read_dir(&unpacked.root).unwrap().count();
                check(&unpacked.root, 0);
            }
            Err(error) => {
                let left: Vec<_> = fs::read_dir(&store).unwrap().map(|entry| entry.unwrap().file_name()).collect();
                assert!(left.is_empty(), "seed {seed}: {left:?} after {error}");
                assert!(!matches!(error, Error::Left { .. } | Error::Cancelled), "seed {seed}: {error:?}");
            }
        }
        assert_eq!(state(&outside), before, "seed {seed}");
        fs::remove_dir_all(&dir).unwrap();
    }
    // Cases that fail at once would show nothing.
    assert!(cases < 100 || opened * 10 > cases && files as u64 > opened, "{opened} of {cases} opened, {files} files");
}
