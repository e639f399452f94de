//! The six operations of the smallfile tool: several threads, each in its own directory.

use std::io;

use super::{
    aligned::AlignedBuffer,
    place::{How, Storage},
    stage::Stage,
};

pub(super) const COUNT: usize = 6;

/// Number of threads.
pub(super) const JOBS: u16 = 8;

pub(super) fn run(stage: &mut Stage<'_>) -> io::Result<()> {
    let (files, bytes) = (stage.params.smallfile_files, stage.params.smallfile_kib as usize * 1024);
    let top = stage.path("smallfile");
    for job in 0..JOBS {
        stage.place().create_dir_all(&format!("{top}/thread{job}"))?;
    }
    let paths = |_: &dyn Storage, job: u16| {
        let named = |prefix: &str| (0..files).map(|n| format!("{top}/thread{job}/{prefix}{n:05}")).collect();
        Ok(Job { paths: named("file"), renamed: named("renamed"), buffer: AlignedBuffer::new(bytes, 0x5a) })
    };
    let mut each = |name: &str, bytes: usize, operation: Operation| {
        stage.measure_jobs(&format!("smallfile {name}"), JOBS, paths, |place, job, laps| {
            for number in 0..job.paths.len() {
                operation(place, job, number)?;
                laps.lap(bytes);
            }
            Ok(())
        })
    };
    each("create", bytes, |place, job, n| place.write_file(&job.paths[n], job.buffer.bytes()))?;
    each("ls-l", 0, |place, job, n| place.stat(&job.paths[n]))?;
    each("read", bytes, |place, job, n| {
        place.open(&job.paths[n], How::READ)?.read_exact_at(job.buffer.bytes_mut(), 0)
    })?;
    each("append", bytes, |place, job, n| {
        let end = job.buffer.bytes().len() as u64;
        place.open(&job.paths[n], How::APPEND)?.write_all_at(job.buffer.bytes(), end)
    })?;
    each("rename", 0, |place, job, n| place.rename(&job.paths[n], &job.renamed[n]))?;
    each("delete-renamed", 0, |place, job, n| place.remove_file(&job.renamed[n]))?;
    stage.place().remove_dir_all(&top)
}

/// The data of one thread.
struct Job {
    paths: Vec<String>,
    renamed: Vec<String>,
    buffer: AlignedBuffer,
}

type Operation = fn(&dyn Storage, &mut Job, usize) -> io::Result<()>;
