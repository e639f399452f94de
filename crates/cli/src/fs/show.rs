//! `cat` and `stat`.

use std::{
    io::{self, Write as _},
    os::unix::ffi::OsStrExt as _,
    path::PathBuf,
};

use anyhow::Result;
use clap::Args;

use super::{
    Task,
    text::{self, for_stdout},
    tree::Tree as _,
};

/// The most that one request can carry.
const CHUNK_LEN: usize = 1 << 20;

/// Write files to standard output
#[derive(Debug, Args)]
pub(super) struct Cat {
    /// Files, written one after the other
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
}

/// Show the attributes of files
#[derive(Debug, Args)]
pub(super) struct Stat {
    /// Files of any type
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,

    /// Follow symbolic links
    #[arg(long, short = 'L')]
    dereference: bool,

    /// Print one line of JSON for each path; bytes of names that are not UTF-8 appear as �
    #[arg(long)]
    json: bool,
}

impl Cat {
    pub(super) fn run(self, task: &mut Task) -> Result<()> {
        let mut buffer = vec![0; CHUNK_LEN];
        task.each(&self.paths, |task, path| {
            let file = task.share.open(path)?;
            let mut offset = 0;
            loop {
                task.check_interrupted()?;
                let len = file.read_at(&mut buffer, offset)?;
                if len == 0 {
                    return Ok(());
                }
                io::stdout().write_all(&buffer[..len])?;
                offset += len as u64;
            }
        })
    }
}

impl Stat {
    pub(super) fn run(self, task: &mut Task) -> Result<()> {
        task.each(&self.paths, |task, path| {
            let stat = task.share.stat(path, self.dereference)?;
            let target = if stat.is_symlink() { Some(task.share.read_link(path)?) } else { None };
            let mut out = io::stdout().lock();
            if self.json {
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                let line = serde_json::json!({
                    "path": text(path.as_os_str().as_bytes()),
                    "target": target.as_deref().map(text),
                    "kind": text::kind(stat.mode),
                    "inode": stat.ino,
                    "mode": format!("{:04o}", stat.mode & 0o7777),
                    "links": stat.nlink,
                    "uid": stat.uid,
                    "gid": stat.gid,
                    "size_bytes": stat.size,
                    "allocated_bytes": stat.blocks.saturating_mul(512),
                    "device": stat.is_device().then_some([stat.rdev.0, stat.rdev.1]),
                    "accessed": text::exact_time(stat.atime.0, stat.atime.1),
                    "modified": text::exact_time(stat.mtime.0, stat.mtime.1),
                    "changed": text::exact_time(stat.ctime.0, stat.ctime.1),
                });
                return Ok(writeln!(out, "{line}")?);
            }
            write!(out, "    path: ")?;
            out.write_all(&for_stdout(path.as_os_str().as_bytes()))?;
            if let Some(target) = target {
                write!(out, " -> ")?;
                out.write_all(&for_stdout(&target))?;
            }
            writeln!(out, "\n    kind: {}", text::kind(stat.mode))?;
            if stat.is_device() {
                writeln!(out, "  device: {}, {}", stat.rdev.0, stat.rdev.1)?;
            }
            let allocated = stat.blocks.saturating_mul(512);
            writeln!(out, "    size: {} bytes, {allocated} allocated", stat.size)?;
            writeln!(out, "    mode: {:04o} {}", stat.mode & 0o7777, text::mode(stat.mode))?;
            writeln!(out, "   owner: {}:{}", stat.uid, stat.gid)?;
            writeln!(out, "   inode: {}, {} links", stat.ino, stat.nlink)?;
            for (what, (seconds, nanoseconds)) in
                [("accessed", stat.atime), ("modified", stat.mtime), ("changed", stat.ctime)]
            {
                writeln!(out, "{what:>8}: {}", text::exact_time(seconds, nanoseconds))?;
            }
            Ok(())
        })
    }
}
