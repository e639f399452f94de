//! Many small files: what package managers, compilers and version control do all day.

use std::{
    fs::{self, File, Permissions},
    io::{self, Read, Write},
    os::unix::fs::PermissionsExt,
    path::PathBuf,
};

use super::stage::Stage;

pub(super) const COUNT: usize = 13;

pub(super) fn run<W: io::Write>(stage: &mut Stage<W>) -> io::Result<()> {
    let files = Files::new(stage)?;
    let content = vec![0x5a; stage.params.file_bytes as usize];

    stage.measure("create_write_4k", |laps| {
        for path in &files.paths {
            File::create(path)?.write_all(&content)?;
            laps.lap(content.len());
        }
        Ok(())
    })?;

    stat_all(&files.paths)?;
    stage
        .measure("stat_warm", |laps| each(&files.paths, |path| fs::symlink_metadata(path).map(drop), || laps.lap(0)))?;
    stage.forget_all()?;
    stage
        .measure("stat_cold", |laps| each(&files.paths, |path| fs::symlink_metadata(path).map(drop), || laps.lap(0)))?;
    stage.measure("stat_absent", |laps| each(&files.absent, expect_absent, || laps.lap(0)))?;

    stage.forget_all()?;
    stage.measure("readdir_cold", |laps| {
        for dir in &files.dirs {
            for entry in fs::read_dir(dir)? {
                entry?;
                laps.lap(0);
            }
        }
        Ok(())
    })?;
    stage.forget_all()?;
    stage.measure("readdir_stat_cold", |laps| {
        for dir in &files.dirs {
            for entry in fs::read_dir(dir)? {
                entry?.metadata()?;
                laps.lap(0);
            }
        }
        Ok(())
    })?;

    let mut buffer = Vec::with_capacity(content.len() + 1);
    let mut read = |path: &PathBuf| {
        buffer.clear();
        File::open(path)?.take(content.len() as u64).read_to_end(&mut buffer).map(drop)
    };
    stage.forget_all()?;
    stage.measure("open_read_close_cold", |laps| each(&files.paths, &mut read, || laps.lap(content.len())))?;
    stage.measure("open_read_close_warm", |laps| each(&files.paths, &mut read, || laps.lap(content.len())))?;
    stage.measure("open_close", |laps| each(&files.paths, |path| File::open(path).map(drop), || laps.lap(0)))?;

    stage.forget_all()?;
    stage.measure("append_cold", |laps| {
        for path in &files.paths {
            File::options().append(true).open(path)?.write_all(&content)?;
            laps.lap(content.len());
        }
        Ok(())
    })?;
    let mode = Permissions::from_mode(0o600);
    stage
        .measure("chmod", |laps| each(&files.paths, |path| fs::set_permissions(path, mode.clone()), || laps.lap(0)))?;
    stage.measure("rename", |laps| {
        for (from, to) in files.paths.iter().zip(&files.renamed) {
            fs::rename(from, to)?;
            laps.lap(0);
        }
        Ok(())
    })?;
    stage.measure("unlink", |laps| each(&files.renamed, |path| fs::remove_file(path), || laps.lap(0)))?;
    fs::remove_dir_all(stage.path("small"))
}

/// The names, made before any clock runs.
struct Files {
    dirs: Vec<PathBuf>,
    paths: Vec<PathBuf>,
    renamed: Vec<PathBuf>,
    absent: Vec<PathBuf>,
}

impl Files {
    fn new<W: io::Write>(stage: &Stage<W>) -> io::Result<Self> {
        let (count, per_dir) = (stage.params.files, stage.params.files_per_dir.max(1));
        let dirs: Vec<_> = (0..count.div_ceil(per_dir)).map(|dir| stage.path(format!("small/d{dir:03}"))).collect();
        for dir in &dirs {
            fs::create_dir_all(dir)?;
        }
        let named =
            |prefix: &str| (0..count).map(|n| dirs[(n / per_dir) as usize].join(format!("{prefix}{n:06}"))).collect();
        Ok(Self { paths: named("file"), renamed: named("renamed"), absent: named("absent"), dirs })
    }
}

fn each(
    paths: &[PathBuf],
    mut operation: impl FnMut(&PathBuf) -> io::Result<()>,
    mut done: impl FnMut(),
) -> io::Result<()> {
    for path in paths {
        operation(path)?;
        done();
    }
    Ok(())
}

fn stat_all(paths: &[PathBuf]) -> io::Result<()> {
    each(paths, |path| fs::symlink_metadata(path).map(drop), || ())
}

fn expect_absent(path: &PathBuf) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(_) => Err(io::Error::other(format!("{path:?} exists"))),
    }
}
