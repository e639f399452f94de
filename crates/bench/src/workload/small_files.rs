//! Many small files, as package managers, compilers and version control use them.

use std::io;

use super::{
    laps::Laps,
    place::{How, Storage},
    stage::Stage,
};

pub(super) const COUNT: usize = 13;

pub(super) fn run(stage: &mut Stage<'_>) -> io::Result<()> {
    let files = Files::new(stage)?;
    let content = vec![0x5a; stage.params.file_bytes as usize];

    stage.measure("create_write_4k", |place, laps| {
        for path in &files.paths {
            place.write_file(path, &content)?;
            laps.lap(content.len());
        }
        Ok(())
    })?;

    let stat = |place: &dyn Storage, path: &str| place.stat(path);
    each(stage.place(), &files.paths, &mut Laps::begin(), 0, stat)?;
    stage.measure("stat_warm", |place, laps| each(place, &files.paths, laps, 0, stat))?;
    stage.measure_cold("stat_cold", |place, laps| each(place, &files.paths, laps, 0, stat))?;
    stage.measure("stat_absent", |place, laps| each(place, &files.absent, laps, 0, expect_absent))?;

    stage.measure_cold("readdir_cold", |place, laps| {
        for dir in &files.dirs {
            place.read_dir(dir, &mut |_, _| {
                laps.lap(0);
                Ok(())
            })?;
        }
        Ok(())
    })?;
    stage.measure_cold("readdir_stat_cold", |place, laps| {
        for dir in &files.dirs {
            place.read_dir(dir, &mut |name, _| {
                place.stat(&format!("{dir}/{name}"))?;
                laps.lap(0);
                Ok(())
            })?;
        }
        Ok(())
    })?;

    let len = content.len();
    let read = |place: &dyn Storage, path: &str| {
        let mut buffer = vec![0; len];
        place.open(path, How::READ)?.read_exact_at(&mut buffer, 0)
    };
    stage.measure_cold("open_read_close_cold", |place, laps| each(place, &files.paths, laps, len, read))?;
    stage.measure("open_read_close_warm", |place, laps| each(place, &files.paths, laps, len, read))?;
    let open = |place: &dyn Storage, path: &str| place.open(path, How::READ).map(drop);
    stage.measure("open_close", |place, laps| each(place, &files.paths, laps, 0, open))?;

    let append =
        |place: &dyn Storage, path: &str| place.open(path, How::APPEND)?.write_all_at(&content, content.len() as u64);
    stage.measure_cold("append_cold", |place, laps| each(place, &files.paths, laps, len, append))?;
    let chmod = |place: &dyn Storage, path: &str| place.set_mode(path, 0o600);
    stage.measure("chmod", |place, laps| each(place, &files.paths, laps, 0, chmod))?;
    stage.measure("rename", |place, laps| {
        for (from, to) in files.paths.iter().zip(&files.renamed) {
            place.rename(from, to)?;
            laps.lap(0);
        }
        Ok(())
    })?;
    let unlink = |place: &dyn Storage, path: &str| place.remove_file(path);
    stage.measure("unlink", |place, laps| each(place, &files.renamed, laps, 0, unlink))?;
    stage.place().remove_dir_all(&stage.path("small"))
}

/// The names, built before any timing starts.
struct Files {
    dirs: Vec<String>,
    paths: Vec<String>,
    renamed: Vec<String>,
    absent: Vec<String>,
}

impl Files {
    fn new(stage: &Stage<'_>) -> io::Result<Self> {
        let (count, per_dir) = (stage.params.files, stage.params.files_per_dir.max(1));
        let dirs: Vec<_> = (0..count.div_ceil(per_dir)).map(|dir| stage.path(&format!("small/d{dir:03}"))).collect();
        for dir in &dirs {
            stage.place().create_dir_all(dir)?;
        }
        let named =
            |prefix: &str| (0..count).map(|n| format!("{}/{prefix}{n:06}", dirs[(n / per_dir) as usize])).collect();
        Ok(Self { paths: named("file"), renamed: named("renamed"), absent: named("absent"), dirs })
    }
}

/// Does `operation`, which moves `bytes`, with each of `paths`.
fn each(
    place: &dyn Storage,
    paths: &[String],
    laps: &mut Laps,
    bytes: usize,
    operation: impl Fn(&dyn Storage, &str) -> io::Result<()>,
) -> io::Result<()> {
    for path in paths {
        operation(place, path)?;
        laps.lap(bytes);
    }
    Ok(())
}

fn expect_absent(place: &dyn Storage, path: &str) -> io::Result<()> {
    match place.stat(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(()) => Err(io::Error::other(format!("{path:?} exists"))),
    }
}
