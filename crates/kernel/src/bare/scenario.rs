//! The scenario that the kernel runs on a share. The host prepares `input` and `many`, and checks `output` afterwards.

use alloc::{format, string::String, vec};

use transom_guest::{
    Errno,
    fs::{Fs, OpenOptions},
};

use super::{console::say, platform::Bare};

/// Bytes read at once: more than one request can carry.
const PIECE_LEN: usize = 3 << 20;

/// The step that failed, and why.
#[derive(Debug)]
pub(super) struct StepError(String);

impl core::fmt::Display for StepError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::error::Error for StepError {}

/// A step, which returns what it has seen.
pub(super) type Step = fn(&Fs<Bare>) -> Result<String, Errno>;

/// Reads, writes, and changes names.
pub(super) fn run(fs: &Fs<Bare>) -> Result<(), StepError> {
    let steps: [(&str, Step); 5] = [
        ("reverse a file", reverse),
        ("list a directory", list),
        ("create, rename and remove", change_names),
        ("holes and sizes", holes),
        ("errors", errors),
    ];
    run_steps(fs, &steps)
}

/// Sends a few hundred requests that change nothing.
pub(super) fn look_around(fs: &Fs<Bare>) -> Result<(), StepError> {
    run_steps(fs, &[("list a directory", list), ("errors", errors)])
}

/// Runs steps, and reports each that succeeded.
pub(super) fn run_steps(fs: &Fs<Bare>, steps: &[(&str, Step)]) -> Result<(), StepError> {
    for (name, step) in steps {
        match step(fs) {
            Ok(seen) => say!("ok: {name}: {seen}"),
            Err(error) => return Err(StepError(format!("{name}: {error}"))),
        }
    }
    Ok(())
}

/// Writes the bytes of `input` to `output` in reverse order.
fn reverse(fs: &Fs<Bare>) -> Result<String, Errno> {
    let input = fs.open_read("input")?;
    let mut bytes = vec![0; input.metadata()?.len() as usize];
    let mut at = 0;
    while at < bytes.len() {
        let end = bytes.len().min(at + PIECE_LEN);
        let len = input.read(&mut bytes[at..end])?;
        expect(len > 0)?;
        at += len;
    }
    expect(input.read(&mut [0])? == 0)?;
    bytes.reverse();
    let output = fs.create("output")?;
    output.write_all(&bytes)?;
    output.sync_all()?;
    output.close()?;
    Ok(format!("{} bytes", bytes.len()))
}

fn list(fs: &Fs<Bare>) -> Result<String, Errno> {
    let mut bytes = 0;
    let mut names = 0;
    for entry in fs.read_dir("many")? {
        let path = [b"many/", &entry?.name[..]].concat();
        bytes += fs.metadata(path)?.len();
        names += 1;
    }
    Ok(format!("{names} files of {bytes} bytes"))
}

fn change_names(fs: &Fs<Bare>) -> Result<String, Errno> {
    fs.create_dir_all("made/within", 0o755)?;
    fs.create("made/within/file")?.write_all(b"hello")?;
    fs.symlink("within/file", "made/link")?;
    fs.hard_link("made/link", "made/linked")?;
    fs.rename("made/within/file", "made/within/renamed")?;
    fs.symlink("within/renamed", "made/again")?;
    let mut text = [0; 16];
    let len = fs.open_read("made/again")?.read(&mut text)?;
    expect(&text[..len] == b"hello")?;
    expect(fs.metadata("made/link").err() == Some(Errno::NOENT))?;
    expect(fs.symlink_metadata("made/linked")?.attr().nlink.get() == 2)?;
    fs.remove_dir_all("made")?;
    expect(fs.exists("made") == Ok(false))?;
    Ok(String::from("nothing is left"))
}

fn holes(fs: &Fs<Bare>) -> Result<String, Errno> {
    let options = OpenOptions::new().read(true).write(true).create_new(true);
    let file = fs.open("sparse", &options)?;
    file.write_at(1 << 30, b"end")?;
    expect(file.metadata()?.len() == (1 << 30) + 3)?;
    let mut bytes = vec![1; 8192];
    expect(file.read_at((1 << 30) - 8189, &mut bytes)? == 8192)?;
    expect(bytes[..8189].iter().all(|&byte| byte == 0) && &bytes[8189..] == b"end")?;
    file.set_len(10)?;
    expect(file.read_at(0, &mut bytes)? == 10)?;
    fs.remove_file("sparse")?;
    expect(file.metadata()?.attr().nlink.get() == 0)?;
    Ok(String::from("read as zeros"))
}

fn errors(fs: &Fs<Bare>) -> Result<String, Errno> {
    let seen = [
        (fs.open_read("absent").err(), Errno::NOENT),
        (fs.create_dir("many", 0o755).err(), Errno::EXIST),
        (fs.remove_dir("many").err(), Errno::NOTEMPTY),
        (fs.open_read("input/within").err(), Errno::NOTDIR),
        (fs.create([b'x'; 256]).err(), Errno::NAMETOOLONG),
    ];
    for (error, wanted) in seen {
        expect(error == Some(wanted))?;
    }
    Ok(format!("{} as expected", seen.len()))
}

/// Returns EIO unless `is_so`, and says where that was.
#[track_caller]
pub(super) fn expect(is_so: bool) -> Result<(), Errno> {
    if is_so {
        return Ok(());
    }
    say!("not as expected: {}", core::panic::Location::caller());
    Err(Errno::IO)
}
